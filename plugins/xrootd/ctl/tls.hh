// One exchange with a service identified by its key.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct ssl_ctx_st;

namespace dray {

// The exchange failed; one line gives the reason.
struct Unreached : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Address {
	struct sockaddr_storage place;
	socklen_t length;
};

// A client that speaks TLS 1.3 with one address, and only with the holder of one key. Any thread
// may use it.
class Peer {
public:
	// `key` is the SHA-256 of the peer's public key, 64 hexadecimal digits. Resolves the host here,
	// once: a look-up has no timeout. Throws std::runtime_error.
	Peer(const std::string &host, const std::string &port, const std::string &key);
	~Peer();
	Peer(const Peer &) = delete;
	Peer &operator=(const Peer &) = delete;

	// Sends all of `text` on a new connection and returns the data until its end. Sends nothing to
	// the holder of another key. Throws Unreached; takes at most `seconds`, whatever the peer does.
	std::string exchange(const std::string &text, int seconds) const;

private:
	std::vector<Address> addresses_;
	std::string key_;
	std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st *)> context_;
};

} // namespace dray
