// One exchange with a service that is known by its key.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct ssl_ctx_st;

namespace dray {

// Nothing came of it; one line says why.
struct Unreached : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Address {
	struct sockaddr_storage place;
	socklen_t length;
};

// Who speaks TLS 1.3 to one address, and to the holder of one key alone. Any thread may use it.
class Peer {
public:
	// `key` is the SHA-256 of its public key, 64 hexadecimal digits. The host is looked up here, once: no
	// look-up can be bounded. Throws std::runtime_error.
	Peer(const std::string &host, const std::string &port, const std::string &key);
	~Peer();
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;

	// Sends all of `text` on a connection of its own and gives what comes until its end. Nothing is sent
	// to another key's holder. Throws Unreached; whatever the peer does, it takes `seconds` at the most.
	std::string exchange(const std::string &text, int seconds) const;

private:
	std::vector<Address> addresses_;
	std::string key_;
	std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st *)> context_;
};

} // namespace dray
