// Requests tickets from the endpoint beside the server.
#pragma once

#include "settings.hh"
#include "tls.hh"

#include <atomic>
#include <stdexcept>
#include <string>

namespace dray {

// No ticket. `number` is a system error number for the client; `what` is for the server's log.
struct NoTicket : std::runtime_error {
	NoTicket(int number, const std::string &why) : std::runtime_error(why), number(number) {}
	int number;
};

// A client's request for a ticket.
struct Question {
	// The client's id of the transfer.
	std::string transfer;
	// Fingerprint of the client's key, `sha256:...`.
	std::string peer_key;
};

// Returns true if these words are meant for this plug-in.
bool is_meant(const std::string &words);

// Parses a request; throws NoTicket.
Question read_question(const std::string &words);

// Requests tickets from the endpoint. Any thread may use it.
class TicketClient {
public:
	// Throws std::runtime_error.
	explicit TicketClient(const Settings &settings);

	// Returns the answer to `question` from a client that may read the endpoint's `path`: one line
	// of JSON. Throws NoTicket.
	std::string ticket(const Question &question, const std::string &path);

private:
	std::string call(const Question &question, const std::string &path) const;

	Settings settings_;
	Peer peer_;
	std::atomic<int> under_way_{0};
	// Time of the steady clock, in seconds, before which no request is sent.
	std::atomic<long long> away_until_{0};
};

} // namespace dray
