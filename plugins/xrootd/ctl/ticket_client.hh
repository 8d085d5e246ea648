// Requests tickets from the dray endpoint beside the server.
#pragma once

#include "endpoint_client.hh"
#include "settings.hh"

#include <stdexcept>
#include <string>

namespace dray {

// Exception for a request that gets no ticket. The client receives `number`, a system error number.
// The server's log receives the reason, `what`.
struct NoTicket : std::runtime_error {
	NoTicket(int number, const std::string &why) : std::runtime_error(why), number(number) {}
	int number;
};

// A client's request for a ticket.
struct Question {
	// Id that the client has chosen for the transfer.
	std::string transfer;
	// Fingerprint of the client's key, `sha256:...`.
	std::string peer_key;
};

// Returns true if this plug-in must handle the command with these words.
bool is_meant(const std::string &words);

// Parses a request. Throws NoTicket if it is invalid.
Question read_question(const std::string &words);

// Requests tickets from the endpoint. Several threads may use an object of this class.
class TicketClient {
public:
	// Throws std::runtime_error if the token cannot be read.
	explicit TicketClient(const Settings &settings);

	// Returns the answer for a client that may read the file at the endpoint's `path`. The answer
	// is one line of JSON. Throws NoTicket if the client gets no ticket.
	std::string ticket(const Question &question, const std::string &path);

private:
	Answer call(const Question &question, const std::string &path);

	Settings settings_;
	EndpointClient client_;
};

} // namespace dray
