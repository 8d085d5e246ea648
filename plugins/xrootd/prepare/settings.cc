#include "settings.hh"

#include "lines.hh"

namespace dray {

namespace {

constexpr const char *known = "endpoint HOST:PORT, peer_key sha256:HEX, token_file PATH, root NAME FOLDER, "
			      "client_tokens yes|no, lifetime_seconds N or wait_seconds N";
// Largest valid `wait_seconds`. A client waits for the answer, and each call occupies a thread of
// the server.
constexpr int wait_most = 60;
constexpr int lifetime_most = 316224000;

bool take(const std::vector<std::string> &words, Settings &settings)
{
	bool is_pair = words.size() == 2;
	if (is_pair && words[0] == "client_tokens" && (words[1] == "yes" || words[1] == "no"))
		settings.client_tokens = words[1] == "yes";
	else if (is_pair && words[0] == "lifetime_seconds")
		settings.lifetime = "PT" + std::to_string(number(words[1], 1, lifetime_most)) + "S";
	else
		return take_endpoint(words, settings, wait_most);
	return true;
}

} // namespace

Settings read_settings(const std::string &path)
{
	Settings settings;
	settings.wait_seconds = 10;
	read_lines(path, known, [&](const std::vector<std::string> &words) { return take(words, settings); });
	finish_endpoint(path, settings);
	return settings;
}

} // namespace dray
