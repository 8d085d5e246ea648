#include "endpoint_client.hh"

#include <chrono>
#include <sstream>

namespace dray {

namespace {

// Maximum number of concurrent calls. Each call occupies a thread of the server. The value is
// estimated, not measured.
constexpr int under_way_max = 16;
// Seconds for which no call is sent after the endpoint did not answer. Otherwise each call would
// wait for the endpoint.
constexpr long long away_seconds = 5;

long long now_seconds()
{
	auto since = std::chrono::steady_clock::now().time_since_epoch();
	return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

// Counts one concurrent call from the construction to the destruction of the object.
class Turn {
public:
	explicit Turn(std::atomic<int> &taken) : taken_(taken)
	{
		if (++taken_ > under_way_max) {
			--taken_;
			throw NoAnswer("the maximum number of requests is waiting for the endpoint");
		}
	}
	Turn(const Turn &) = delete;
	Turn &operator=(const Turn &) = delete;
	~Turn() { --taken_; }

private:
	std::atomic<int> &taken_;
};

Answer read_answer(const std::string &answer)
{
	auto end = answer.find("\r\n\r\n");
	std::istringstream first(answer.substr(0, answer.find("\r\n")));
	std::string version, status;
	first >> version >> status;
	if (end == std::string::npos || version.rfind("HTTP/1.", 0) != 0)
		throw NoAnswer("the endpoint's answer is not HTTP");
	return {status, nlohmann::json::parse(answer.substr(end + 4), nullptr, false)};
}

} // namespace

std::string text_of(const nlohmann::json &json, const char *name)
{
	auto found = json.is_object() ? json.find(name) : json.end();
	return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string Answer::cause() const
{
	auto error = body.is_object() ? body.find("error") : body.end();
	return error != body.end() ? text_of(*error, "cause") : "";
}

EndpointClient::EndpointClient(const EndpointSettings &settings)
	: settings_(settings), peer_(settings.host, settings.port, settings.peer_key)
{
}

Answer EndpointClient::call(const std::string &method, const std::string &path, const std::string &token,
			    const std::string &body, size_t answer_bytes_max)
{
	if (now_seconds() < away_until_)
		throw NoAnswer("the endpoint did not answer a moment ago, so the plug-in does not call it again yet");
	Turn turn(under_way_);
	// Use HTTP 1.0. The answer is then not chunked, and it ends when the connection ends.
	std::string head = method + " " + path + " HTTP/1.0\r\nHost: " + settings_.host + ":" + settings_.port +
			   "\r\nAuthorization: Bearer " + token + "\r\n";
	if (!body.empty())
		head += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
	try {
		return read_answer(peer_.exchange(head + "\r\n" + body, settings_.wait_seconds, answer_bytes_max));
	} catch (const Unreached &error) {
		away_until_ = now_seconds() + away_seconds;
		throw NoAnswer(std::string("cannot call the endpoint: ") + error.what());
	}
}

} // namespace dray
