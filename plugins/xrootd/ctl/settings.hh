// The administrator's settings for tickets. They are in a small file. The server's configuration
// gives the path of this file after the name of the plug-in.
#pragma once

#include "endpoint_settings.hh"

#include <string>

namespace dray {

struct Settings : EndpointSettings {
	// Seconds within which a ticket must be used.
	int lifetime_seconds = 60;
	// Maximum seconds for which sessions may renew a ticket.
	int renewable_seconds = 3600;
};

// Reads the file at `path`. Throws std::runtime_error that contains the invalid or missing setting.
Settings read_settings(const std::string &path);

} // namespace dray
