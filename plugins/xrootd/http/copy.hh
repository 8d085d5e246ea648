// One copy in progress. Converts the lines of the program to progress markers for the client.
#pragma once

#include "request.hh"
#include "settings.hh"

#include <functional>
#include <string>

namespace dray {

// Sends text to the client. Returns false if the client has disconnected.
using Send = std::function<bool(const std::string &)>;

// Outcome of a copy.
struct Outcome {
	bool is_client_gone = false;
	// Reason for a failure, as one line. Empty after success.
	std::string failure;
};

// Runs a copy from or to the file at `path`. Sends the client a marker with the number of durable
// bytes every `marker_seconds`. `client` is the client's socket, or -1 if it is unknown. If the
// socket closes or `send` fails, the program that copies is killed, and durable data is kept. This
// program is also killed after `silence_seconds` without output. `authorities` is the folder of
// certificate authorities that the server trusts; it may be empty. If the copy cannot start, throws
// Refusal or std::system_error.
Outcome copy(const Settings &settings, const CopyRequest &request, const std::string &path,
	     const std::string &authorities, int client, const Send &send);

} // namespace dray
