#include "settings.hh"

#include "lines.hh"

namespace dray {

namespace {

constexpr const char *known = "endpoint HOST:PORT, peer_key sha256:HEX, token_file PATH, root NAME FOLDER, "
			      "lifetime_seconds N, renewable_seconds N or wait_seconds N";
constexpr int wait_most = 8;

bool take(const std::vector<std::string> &words, Settings &settings)
{
	if (words.size() == 2 && words[0] == "lifetime_seconds")
		settings.lifetime_seconds = number(words[1], 1, 3600);
	else if (words.size() == 2 && words[0] == "renewable_seconds")
		settings.renewable_seconds = number(words[1], 1, 604800);
	else
		return take_endpoint(words, settings, wait_most);
	return true;
}

} // namespace

Settings read_settings(const std::string &path)
{
	Settings settings;
	read_lines(path, known, [&](const std::vector<std::string> &words) { return take(words, settings); });
	finish_endpoint(path, settings);
	return settings;
}

} // namespace dray
