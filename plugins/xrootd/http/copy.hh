// One copy in progress: converts the program's lines to the client's markers.
#pragma once

#include "request.hh"
#include "settings.hh"

#include <functional>
#include <string>

namespace dray {

// Sends text to the client; returns false if the client has disconnected.
using Send = std::function<bool(const std::string &)>;

// Outcome of a copy.
struct Outcome {
	bool is_client_gone = false;
	// One line; empty on success.
	std::string failure;
};

// Runs a copy of or to the file at `path`. Every `marker_seconds` it sends the client a marker with
// the number of durable bytes. `client` is the client's socket, or -1: when it closes, or `send`
// fails, the program is killed; durable data is kept. A program without output for
// `silence_seconds` is killed, too. `authorities` names the folder of the server's trusted
// certificates; it may be empty. Throws Refusal and std::system_error before any data moved.
Outcome copy(const Settings &settings, const CopyRequest &request, const std::string &path,
	     const std::string &authorities, int client, const Send &send);

} // namespace dray
