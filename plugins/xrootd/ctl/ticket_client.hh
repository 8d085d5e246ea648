// Tickets of the endpoint beside the server.
#pragma once

#include "settings.hh"
#include "tls.hh"

#include <atomic>
#include <stdexcept>
#include <string>

namespace dray {

// No ticket. `number` is the system's, for the one who asked; `what` is the server's log's.
struct NoTicket : std::runtime_error {
	NoTicket(int number, const std::string &why) : std::runtime_error(why), number(number) {}
	int number;
};

// What a reader asks for.
struct Question {
	// Its name for the one transfer.
	std::string transfer;
	// The fingerprint of the key that it will show, `sha256:...`.
	std::string peer_key;
};

// Whether these words are meant for this plug-in.
bool is_meant(const std::string &words);

// Reads them; throws NoTicket.
Question read_question(const std::string &words);

// Asks the endpoint for tickets. Any thread may use it.
class TicketClient {
public:
	// Throws std::runtime_error.
	explicit TicketClient(const Settings &settings);

	// The answer for whoever asks `question` and may read what is `path` at the endpoint: one line of
	// JSON. Throws NoTicket.
	std::string ticket(const Question &question, const std::string &path);

private:
	std::string call(const Question &question, const std::string &path) const;

	Settings settings_;
	Peer peer_;
	std::atomic<int> under_way_{0};
	// In seconds of the steady clock: until then it is not asked again.
	std::atomic<long long> away_until_{0};
};

} // namespace dray
