// The administrator's settings for staging. They are in a small file. The server's configuration
// gives the path of this file after the name of the plug-in.
#pragma once

#include "endpoint_settings.hh"

#include <string>

namespace dray {

struct Settings : EndpointSettings {
	// True if the endpoint gets the token with which a client has logged in. For a client without a
	// token, and if this is false, the endpoint gets the token in `token_file`.
	bool client_tokens = false;
	// Time for which a fast copy is kept, as an ISO 8601 duration. Empty: the endpoint's default.
	std::string lifetime;
};

// Reads the file at `path`. Throws std::runtime_error that contains the invalid or missing setting.
Settings read_settings(const std::string &path);

} // namespace dray
