// Calls the control API of the dray endpoint beside the server.
#pragma once

#include "endpoint_settings.hh"
#include "tls.hh"

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace dray {

// Exception for a call without an answer. `what` is the reason for the server's log.
struct NoAnswer : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Answer {
	// HTTP status, such as "201".
	std::string status;
	// The body. Discarded (see nlohmann::json) if it is not JSON, or is truncated.
	nlohmann::json body;

	// Returns the cause of an error, or an empty text.
	std::string cause() const;
};

// Returns the text in the field `name`, or an empty text.
std::string text_of(const nlohmann::json &json, const char *name);

// Sends calls to the endpoint. Several threads may use an object of this class.
class EndpointClient {
public:
	// Throws std::runtime_error if the host has no address.
	explicit EndpointClient(const EndpointSettings &settings);

	// Sends one call, such as "POST" and "/v1/tickets". An empty `body` is no body. Throws NoAnswer.
	Answer call(const std::string &method, const std::string &path, const std::string &token,
		    const std::string &body, size_t answer_bytes_max);

private:
	EndpointSettings settings_;
	Peer peer_;
	std::atomic<int> under_way_{0};
	// Time until which no call is sent, in seconds of the steady clock.
	std::atomic<long long> away_until_{0};
};

} // namespace dray
