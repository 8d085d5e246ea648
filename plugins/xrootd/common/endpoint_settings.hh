// The settings of all plug-ins that call the dray endpoint beside the server: its address and key,
// the token, and the folders of its roots.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dray {

struct EndpointSettings {
	// Address of the endpoint's control API. The API uses TLS.
	std::string host;
	std::string port;
	// Fingerprint of the endpoint's key, 64 hexadecimal digits in lower case.
	std::string peer_key;
	// File that contains the token for the endpoint.
	std::string token_file;
	// The name of each root at the endpoint, and the path of the root's folder without symbolic links.
	std::vector<std::pair<std::string, std::string>> roots;
	// Maximum seconds to wait for an answer of the endpoint.
	int wait_seconds = 3;
};

// Stores the setting that the words of one line contain. Returns false if the words are not one of
// these settings. Throws std::logic_error if the value is invalid. `wait_most` is the largest valid
// `wait_seconds`.
bool take_endpoint(const std::vector<std::string> &words, EndpointSettings &settings, int wait_most);

// Checks that the settings, which were read from the file at `path`, are complete. Resolves the
// symbolic links in the paths of the roots. Throws std::runtime_error that names the missing or
// invalid setting.
void finish_endpoint(const std::string &path, EndpointSettings &settings);

// Returns the path that the endpoint has for the file at `path`. It begins with the name of the
// root. Returns an empty path if no root contains the file.
std::string path_at_endpoint(const EndpointSettings &settings, const std::string &path);

// Returns a path in the text form of the endpoint's API.
std::string escaped(const std::string &path);

// Returns the token in the file at `path`. Throws std::runtime_error if the file contains no token,
// or if another user than the server's may read the file.
std::string read_token(const std::string &path);

} // namespace dray
