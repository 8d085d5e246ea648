// Destinations of third-party copies in progress.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

namespace dray {

// All destinations, by the server's own paths. Any thread may use it.
class Copies {
public:
	// Registers a copy to `path` before its opening. Returns false if another is in progress there.
	bool prepare(const std::string &path);
	// Record that the copy has opened, or closed, its file.
	void opened(const std::string &path);
	void closed(const std::string &path);
	// Called when another client makes a file at `path`. Returns false if a copy is in progress:
	// the file would take its destination.
	bool yields(const std::string &path);
	// Returns true if a copy is in progress, or ended recently. The server may still clean up after
	// the file is closed.
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
