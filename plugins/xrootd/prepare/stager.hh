// Stages files through the tape API of the dray endpoint beside the server.
#pragma once

#include "endpoint_client.hh"
#include "settings.hh"

#include <stdexcept>
#include <string>
#include <vector>

namespace dray {

// Exception for a refused request. The client receives `number`, a system error number, and the
// message `what`. The server's log receives the reason, `log`.
struct Refused : std::runtime_error {
	Refused(int number, const std::string &message, const std::string &log)
		: std::runtime_error(message), number(number), log(log)
	{
	}
	int number;
	std::string log;
};

// A file of a request: the path that the client has named, and the path that the endpoint has.
struct Place {
	std::string named;
	std::string path;
};

// Sends requests to the endpoint. Several threads may use an object of this class. All functions
// throw Refused.
class Stager {
public:
	// Throws std::runtime_error if the token cannot be read, or the endpoint has no address.
	explicit Stager(const Settings &settings);

	// Stages files. `priority` is 0 to 3, and 3 is the most urgent. Returns the id of the request.
	std::string stage(const std::vector<Place> &files, int priority, const std::string &token);

	// Cancels all files of a request.
	void cancel(const std::string &id, const std::string &token);

	// Releases files in all requests of the token's owner.
	void evict(const std::vector<Place> &files, const std::string &token);

	// Returns the states of files as one line of JSON.
	std::string query(const std::string &id, const std::vector<Place> &files, const std::string &token);

private:
	Answer call(const std::string &method, const std::string &path, const nlohmann::json &body,
		    const std::string &token);

	Settings settings_;
	EndpointClient client_;
};

} // namespace dray
