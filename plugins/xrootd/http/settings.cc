#include "settings.hh"

#include "lines.hh"

namespace dray {

namespace {

constexpr const char *known =
	"program PATH, config PATH, marker_seconds N, silence_seconds N or copies_max N";

} // namespace

Settings read_settings(const std::string &path)
{
	Settings settings;
	read_lines(path, known, [&](const std::vector<std::string> &words) {
		if (words.size() != 2)
			return false;
		const std::string &word = words[0], &value = words[1];
		if (word == "program" && value[0] == '/')
			settings.program = value;
		else if (word == "config" && value[0] == '/')
			settings.config = value;
		else if (word == "marker_seconds")
			settings.marker_seconds = number(value, 1, 600);
		else if (word == "silence_seconds")
			settings.silence_seconds = number(value, 1, 86400);
		else if (word == "copies_max")
			settings.copies_max = number(value, 1, 4096);
		else
			return false;
		return true;
	});
	return settings;
}

} // namespace dray
