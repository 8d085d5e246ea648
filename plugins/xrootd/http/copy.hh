// One copy under way: the program's lines become the client's markers.
#pragma once

#include "request.hh"
#include "settings.hh"

#include <functional>
#include <string>

namespace dray {

// Sends text to the client; false when the client is gone.
using Send = std::function<bool(const std::string &)>;

// How a copy came out.
struct Outcome {
	bool is_client_gone = false;
	// One line; empty when all went well.
	std::string failure;
};

// Carries a copy of or to the file at `path`. Every `marker_seconds` the client is sent a marker with
// the bytes that are safe. `client` is the client's socket, or -1: when it closes, or `send` fails, the
// program is killed; what is safe stays safe. A program that says nothing for `silence_seconds` is
// killed, too. `authorities` names the folder of certificates that the server believes; it may be
// empty. Throws Refusal and std::system_error before anything moved.
Outcome copy(const Settings &settings, const CopyRequest &request, const std::string &path,
	     const std::string &authorities, int client, const Send &send);

} // namespace dray
