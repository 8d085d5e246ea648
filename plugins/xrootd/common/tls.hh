// Sends a request to a service that is identified by its public key, and receives the answer.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct ssl_ctx_st;

namespace dray {

// Exception for a failed exchange. `what` is the reason, as one line.
struct Unreached : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Address {
	struct sockaddr_storage place;
	socklen_t length;
};

// A TLS 1.3 client for one address. The client sends data only to the peer that holds the private
// key of one given public key. Several threads may use an object of this class.
class Peer {
public:
	// `key` is the SHA-256 of the peer's public key, as 64 hexadecimal digits. The constructor
	// resolves the host once, because a look-up has no timeout. Throws std::runtime_error.
	Peer(const std::string &host, const std::string &port, const std::string &key);
	~Peer();
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;

	// Sends all of `text` on a new connection and returns all data until the connection ends. Sends
	// nothing if the peer has another key. Takes at most `seconds`, whatever the peer does. Throws
	// Unreached if the exchange fails, or if the answer has more than `bytes_max` bytes.
	std::string exchange(const std::string &text, int seconds, size_t bytes_max) const;

private:
	std::vector<Address> addresses_;
	std::string key_;
	std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st *)> context_;
};

} // namespace dray
