// Reads the settings of a plug-in from a small file. The server's configuration gives the path of
// this file after the name of the plug-in.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dray {

// Processes the words of one line. Returns false, or throws std::logic_error (as std::stoi does),
// if the words are not a valid setting.
using TakeWords = std::function<bool(const std::vector<std::string> &)>;

// Reads the file at `path`. Each line has the name of a setting and its values, and # starts a
// comment. Throws std::runtime_error that contains the invalid line and `known`, the list of
// settings.
void read_lines(const std::string &path, const std::string &known, const TakeWords &take);

// Converts `text` to a number from `least` to `most`. Throws std::logic_error if `text` is not such
// a number.
int number(const std::string &text, int least, int most);

// Returns the text without line ends, truncated to the maximum length of a log line.
std::string one_line(const std::string &text);

// Returns the whole text without line ends, for another program.
std::string whole_line(const std::string &text);

} // namespace dray
