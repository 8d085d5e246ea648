// Settings of a plug-in: a small file, named after the plug-in in the server's configuration.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace dray {

// Takes the words of a line; false, or std::logic_error (as std::stoi throws), when they are none of
// the settings.
using TakeWords = std::function<bool(const std::vector<std::string> &)>;

// Reads the file at `path`: lines of a word and its values, # begins a comment. Throws
// std::runtime_error that says which line is wrong, and `known`, what there is.
void read_lines(const std::string &path, const std::string &known, const TakeWords &take);

// The whole of `text` as a number; throws std::logic_error.
int number(const std::string &text, int least, int most);

// The text without what would end a line, cut where nobody reads on.
std::string one_line(const std::string &text);

// The same with nothing cut: what another program reads.
std::string whole_line(const std::string &text);

} // namespace dray
