// Destinations of third-party copies in progress.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>

namespace dray {

// The destinations of all copies in progress, by the paths that the server uses. Several threads
// may use an object of this class.
class Copies {
public:
	// Registers a copy to `path` before its file is opened. Returns false if another copy to this
	// path is in progress.
	bool prepare(const std::string &path);
	// Records that the file of a copy was opened.
	void opened(const std::string &path);
	// Records that the file of a copy was closed.
	void closed(const std::string &path);
	// Called when another client creates a file at `path`. Returns false if a copy to this path is
	// in progress, because the file would take the copy's destination.
	bool yields(const std::string &path);
	// Returns true if a copy to `path` is in progress or ended recently. A recent copy counts,
	// because the server may clean up after the file was closed.
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
