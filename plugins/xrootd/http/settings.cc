#include "settings.hh"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dray {

namespace {

int number(const std::string &text, int least, int most)
{
	size_t used = 0;
	int value = std::stoi(text, &used);
	if (used != text.size() || value < least || value > most)
		throw std::out_of_range("a number from " + std::to_string(least) + " to " + std::to_string(most));
	return value;
}

} // namespace

Settings read_settings(const std::string &path)
{
	Settings settings;
	std::ifstream file(path);
	if (!file)
		throw std::runtime_error(path + ": cannot be read");
	std::string line;
	for (int at = 1; std::getline(file, line); ++at) {
		std::istringstream words(line.substr(0, line.find('#')));
		std::string word, value, more;
		if (!(words >> word))
			continue;
		bool is_good = static_cast<bool>(words >> value) && !(words >> more);
		try {
			if (is_good && word == "program" && value[0] == '/')
				settings.program = value;
			else if (is_good && word == "config" && value[0] == '/')
				settings.config = value;
			else if (is_good && word == "marker_seconds")
				settings.marker_seconds = number(value, 1, 600);
			else if (is_good && word == "silence_seconds")
				settings.silence_seconds = number(value, 1, 86400);
			else if (is_good && word == "copies_max")
				settings.copies_max = number(value, 1, 4096);
			else
				is_good = false;
		} catch (const std::logic_error &) {
			is_good = false;
		}
		if (!is_good)
			throw std::runtime_error(path + ", line " + std::to_string(at) +
						 ": program PATH, config PATH, marker_seconds N, silence_seconds N "
						 "or copies_max N");
	}
	return settings;
}

} // namespace dray
