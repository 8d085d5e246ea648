// What the server's administrator says of the dray beside the server: a small file, named after the
// plug-in in the server's configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dray {

struct Settings {
	// Where the endpoint's control API listens, with TLS.
	std::string host;
	std::string port;
	// The fingerprint of its key, 64 hexadecimal digits in small letters.
	std::string peer_key;
	// The file with the token that it takes.
	std::string token_file;
	// Folders without links on the way, and the names of the endpoint's roots that are these.
	std::vector<std::pair<std::string, std::string>> roots;
	// Seconds in which a ticket must be used.
	int lifetime_seconds = 60;
	// Seconds for which sessions may keep it good.
	int renewable_seconds = 3600;
	// Seconds that the endpoint is waited for.
	int wait_seconds = 3;
};

// Reads the file at `path`. Throws std::runtime_error that says what is wrong or missing.
Settings read_settings(const std::string &path);

// The endpoint's path of the file that lies at `path`, a root's name first; empty when it lies in none.
std::string path_at_endpoint(const Settings &settings, const std::string &path);

// The token in the file at `path`. Throws std::runtime_error when there is none, or when others than the
// server's user may read it.
std::string read_token(const std::string &path);

} // namespace dray
