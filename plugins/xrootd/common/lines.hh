// Reads the settings of a plug-in: a small file, named after the plug-in in the server's
// configuration.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dray {

// Takes the words of a line; returns false, or throws std::logic_error (as std::stoi does), if they
// are no setting.
using TakeWords = std::function<bool(const std::vector<std::string> &)>;

// Reads the file at `path`: lines of a word and its values, # begins a comment. Throws
// std::runtime_error that names the wrong line, and `known`, the list of settings.
void read_lines(const std::string &path, const std::string &known, const TakeWords &take);

// Returns the whole of `text` as a number; throws std::logic_error.
int number(const std::string &text, int least, int most);

// Returns the text without line ends, cut to the maximum length of a log line.
std::string one_line(const std::string &text);

// Returns the text without line ends and uncut, for another program.
std::string whole_line(const std::string &text);

} // namespace dray
