#include "copies.hh"

namespace dray {

// Time for which a closed copy is remembered, so that the clean-up of the server after the copy is
// recognised. When the file is closed, the server kills the program of the copy, and cleans up in
// far less than a second.
constexpr std::chrono::minutes memory{5};

bool Copies::prepare(const std::string &path)
{
	const std::lock_guard<std::mutex> held(lock);
	const auto now = Clock::now();
	forget_old(now);
	Copy &copy = known[path];
	copy.seen = now;
	return copy.open == 0;
}

void Copies::opened(const std::string &path)
{
	const std::lock_guard<std::mutex> held(lock);
	known[path].open++;
}

void Copies::closed(const std::string &path)
{
	const std::lock_guard<std::mutex> held(lock);
	const auto found = known.find(path);
	if (found == known.end())
		return;
	found->second.open--;
	found->second.seen = Clock::now();
}

bool Copies::yields(const std::string &path)
{
	const std::lock_guard<std::mutex> held(lock);
	const auto found = known.find(path);
	if (found == known.end())
		return true;
	if (found->second.open > 0)
		return false;
	known.erase(found);
	return true;
}

bool Copies::knows(const std::string &path)
{
	const std::lock_guard<std::mutex> held(lock);
	forget_old(Clock::now());
	return known.count(path) > 0;
}

void Copies::forget_old(Clock::time_point now)
{
	for (auto each = known.begin(); each != known.end();)
		if (each->second.open == 0 && now - each->second.seen > memory)
			each = known.erase(each);
		else
			++each;
}

} // namespace dray
