#include "lines.hh"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dray {

namespace {

// Maximum length in bytes of an error text in the log.
constexpr size_t line_bytes_max = 1000;

} // namespace

void read_lines(const std::string &path, const std::string &known, const TakeWords &take)
{
	std::ifstream file(path);
	if (!file)
		throw std::runtime_error(path + ": cannot be read");
	std::string line;
	for (int at = 1; std::getline(file, line); ++at) {
		std::istringstream text(line.substr(0, line.find('#')));
		std::vector<std::string> words;
		for (std::string word; text >> word;)
			words.push_back(word);
		bool is_good = words.empty();
		try {
			is_good = is_good || take(words);
		} catch (const std::logic_error &) {
			is_good = false;
		}
		if (!is_good)
			throw std::runtime_error(path + ", line " + std::to_string(at) +
						 ": not a valid setting; write one of: " + known);
	}
}

int number(const std::string &text, int least, int most)
{
	size_t used = 0;
	int value = std::stoi(text, &used);
	if (used != text.size() || value < least || value > most)
		throw std::out_of_range("a number from " + std::to_string(least) + " to " + std::to_string(most));
	return value;
}

std::string one_line(const std::string &text) { return whole_line(text.substr(0, line_bytes_max)); }

std::string whole_line(const std::string &text)
{
	std::string line = text;
	for (char &c : line)
		if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
			c = ' ';
	return line;
}

} // namespace dray
