// Which names third-party copies are under way to.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

namespace dray {

// All of them, by the server's own paths. Any thread may ask.
class Copies {
public:
	// A copy to `path` is about to be opened. False when another is under way there.
	bool prepare(const std::string &path);
	// It has its file open, or has closed it.
	void opened(const std::string &path);
	void closed(const std::string &path);
	// Somebody else makes a file there. False when a copy is under way: it would take that one's place.
	bool yields(const std::string &path);
	// Whether a copy is, or was a short while ago. After the file is closed the server may still clean up.
	bool knows(const std::string &path);

private:
	using Clock = std::chrono::steady_clock;

	struct Copy {
		int open = 0;
		Clock::time_point seen;
	};

	void forget_old(Clock::time_point now);

	std::mutex lock;
	std::unordered_map<std::string, Copy> known;
};

} // namespace dray
