// The administrator's settings of the dray endpoint beside the server: a small file, named after
// the plug-in in the server's configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dray {

struct Settings {
	// Address of the endpoint's control API, which uses TLS.
	std::string host;
	std::string port;
	// Fingerprint of the endpoint's key, 64 hexadecimal digits in lower case.
	std::string peer_key;
	// File with the token for the endpoint.
	std::string token_file;
	// Folders without links, and the names of the endpoint's roots for them.
	std::vector<std::pair<std::string, std::string>> roots;
	// Seconds within which a ticket must be used.
	int lifetime_seconds = 60;
	// Maximum seconds for which sessions may renew a ticket.
	int renewable_seconds = 3600;
	// Maximum seconds to wait for the endpoint.
	int wait_seconds = 3;
};

// Reads the file at `path`. Throws std::runtime_error that names the wrong or missing setting.
Settings read_settings(const std::string &path);

// Returns the endpoint's path of the file at `path`, which begins with the root's name; empty if no
// root contains it.
std::string path_at_endpoint(const Settings &settings, const std::string &path);

// Returns the token in the file at `path`. Throws std::runtime_error if there is none, or if users
// other than the server's may read it.
std::string read_token(const std::string &path);

} // namespace dray
