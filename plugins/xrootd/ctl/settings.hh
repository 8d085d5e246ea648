// The administrator's settings for the dray endpoint beside the server. They are in a small file.
// The server's configuration gives the path of this file after the name of the plug-in.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dray {

struct Settings {
	// Address of the endpoint's control API. The API uses TLS.
	std::string host;
	std::string port;
	// Fingerprint of the endpoint's key, 64 hexadecimal digits in lower case.
	std::string peer_key;
	// File that contains the token for the endpoint.
	std::string token_file;
	// Folders without symbolic links in their paths, and the names that the endpoint has for these
	// roots.
	std::vector<std::pair<std::string, std::string>> roots;
	// Seconds within which a ticket must be used.
	int lifetime_seconds = 60;
	// Maximum seconds for which sessions may renew a ticket.
	int renewable_seconds = 3600;
	// Maximum seconds to wait for an answer of the endpoint.
	int wait_seconds = 3;
};

// Reads the file at `path`. Throws std::runtime_error that contains the invalid or missing setting.
Settings read_settings(const std::string &path);

// Returns the path that the endpoint has for the file at `path`. It begins with the name of the
// root. Returns an empty path if no root contains the file.
std::string path_at_endpoint(const Settings &settings, const std::string &path);

// Returns the token in the file at `path`. Throws std::runtime_error if the file contains no token,
// or if another user than the server's may read the file.
std::string read_token(const std::string &path);

} // namespace dray
