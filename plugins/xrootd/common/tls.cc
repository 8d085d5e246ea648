#include "tls.hh"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

namespace dray {

namespace {

using clock = std::chrono::steady_clock;

template <auto release> struct Release {
	template <typename T> void operator()(T *held) const { release(held); }
};
using Session = std::unique_ptr<SSL, Release<SSL_free>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Found = std::unique_ptr<addrinfo, Release<freeaddrinfo>>;

// Clears OpenSSL's error queue of the thread before and after use. The server's code on this thread
// must not see errors of this code, and this code must not see errors of the server.
struct Quiet {
	Quiet() { ERR_clear_error(); }
	~Quiet() { ERR_clear_error(); }
};

class Socket {
public:
	explicit Socket(int number) : number_(number) {}
	Socket(Socket &&other) noexcept : number_(other.number_) { other.number_ = -1; }
	Socket(const Socket &) = delete;
	Socket &operator=(const Socket &) = delete;
	~Socket()
	{
		if (number_ >= 0)
			close(number_);
	}
	int number() const { return number_; }

private:
	int number_;
};

// Deadline of a whole exchange. Timeouts of single calls would not suffice, because a peer could
// send one byte from time to time.
class Until {
public:
	explicit Until(int seconds) : moment_(clock::now() + std::chrono::seconds(seconds)) {}

	// Waits until the socket is readable or writable. Throws Unreached at the deadline.
	void await(int socket, short what) const
	{
		pollfd waiting = {socket, what, 0};
		int ready = 0;
		do
			ready = poll(&waiting, 1, left());
		while (ready == 0 || (ready < 0 && errno == EINTR));
		if (ready < 0)
			throw Unreached(std::strerror(errno));
	}

	// Returns the milliseconds until the deadline, at least 1. Throws Unreached after the deadline.
	int left() const
	{
		auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(moment_ - clock::now());
		if (rest.count() <= 0)
			throw Unreached("the endpoint did not answer within the time limit");
		return static_cast<int>(std::min<long long>(rest.count(), INT_MAX));
	}

private:
	clock::time_point moment_;
};

Socket connect_to(const std::vector<Address> &addresses, const Until &until)
{
	std::string why = "the endpoint has no address";
	for (const Address &each : addresses) {
		const auto *place = reinterpret_cast<const sockaddr *>(&each.place);
		Socket made(socket(place->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
		int error = made.number() >= 0 && connect(made.number(), place, each.length) == 0 ? 0 : errno;
		if (error == EINPROGRESS) {
			until.await(made.number(), POLLOUT);
			socklen_t size = sizeof error;
			if (getsockopt(made.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
				error = errno;
		}
		if (error == 0)
			return made;
		why = std::strerror(error);
	}
	throw Unreached(why);
}

std::string key_of(SSL *session)
{
	Certificate certificate(SSL_get_peer_certificate(session));
	unsigned char *bytes = nullptr;
	int length = certificate ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate.get()), &bytes) : -1;
	if (length <= 0)
		return "";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int size = 0;
	int is_made = EVP_Digest(bytes, static_cast<size_t>(length), digest, &size, EVP_sha256(), nullptr);
	OPENSSL_free(bytes);
	std::string text;
	static const char digits[] = "0123456789abcdef";
	for (unsigned int at = 0; is_made == 1 && at < size; ++at)
		(text += digits[digest[at] >> 4]) += digits[digest[at] & 15];
	return text;
}

// Repeats a TLS operation until it succeeds or fails. Returns the result of the last call.
template <typename Do> int finish(SSL *session, const Until &until, Do act)
{
	for (;;) {
		until.left();
		ERR_clear_error();
		int result = act();
		int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(session, result);
		if (error == SSL_ERROR_WANT_READ)
			until.await(SSL_get_fd(session), POLLIN);
		else if (error == SSL_ERROR_WANT_WRITE)
			until.await(SSL_get_fd(session), POLLOUT);
		else
			return result;
	}
}

[[noreturn]] void fail(const char *doing)
{
	unsigned long number = ERR_get_error();
	const char *said = number ? ERR_reason_error_string(number) : nullptr;
	throw Unreached(std::string(doing) + ": " + (said ? said : "the connection ended"));
}

} // namespace

Peer::Peer(const std::string &host, const std::string &port, const std::string &key)
	: key_(key), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free)
{
	if (!context_ || SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION) != 1)
		throw std::runtime_error("the TLS library of this host does not support TLS 1.3");
	// Do not verify the certificate. Its public key is compared before anything is sent.
	SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
	addrinfo wanted = {};
	wanted.ai_socktype = SOCK_STREAM;
	addrinfo *found = nullptr;
	if (int error = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found))
		throw std::runtime_error("the endpoint " + host + " has no address: " + gai_strerror(error) +
					 "; use a host name that resolves when the server starts, or an IP address");
	Found held(found);
	for (const addrinfo *each = found; each; each = each->ai_next) {
		Address address = {{}, each->ai_addrlen};
		std::memcpy(&address.place, each->ai_addr, each->ai_addrlen);
		addresses_.push_back(address);
	}
}

Peer::~Peer() = default;

std::string Peer::exchange(const std::string &text, int seconds, size_t bytes_max) const
{
	Until until(seconds);
	Quiet quiet;
	Socket socket = connect_to(addresses_, until);
	Session session(SSL_new(context_.get()));
	SSL *tls = session.get();
	if (!session || SSL_set_fd(tls, socket.number()) != 1)
		throw Unreached("cannot set up TLS for a connection to the endpoint");
	if (finish(tls, until, [&] { return SSL_connect(tls); }) != 1)
		fail("TLS");
	if (key_of(tls) != key_)
		throw Unreached("the endpoint's key is not the configured peer_key");
	auto send = [&] { return SSL_write(tls, text.data(), static_cast<int>(text.size())); };
	if (finish(tls, until, send) <= 0)
		fail("send");
	std::string answer;
	char buffer[4096];
	for (;;) {
		int count = finish(tls, until, [&] { return SSL_read(tls, buffer, sizeof buffer); });
		if (count <= 0) {
			// The answer may be truncated. The caller detects this.
			if (!answer.empty())
				return answer;
			fail("receive");
		}
		if (answer.size() + static_cast<size_t>(count) > bytes_max)
			throw Unreached("the endpoint's answer is too long");
		answer.append(buffer, static_cast<size_t>(count));
	}
}

} // namespace dray
