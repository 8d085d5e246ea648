#include "exports.hh"

#include <algorithm>
#include <sstream>

namespace dray {

Exports::Exports(const std::string &told)
{
	std::istringstream words(told);
	for (std::string word; words >> word;)
		beginnings_.push_back(word);
}

bool Exports::reach(const std::string &path) const
{
	if (path.empty() || path.front() != '/')
		return false;
	std::istringstream parts(path);
	for (std::string part; std::getline(parts, part, '/');)
		if (part == "." || part == "..")
			return false;
	// Compare prefixes as the server does. For the server, `all.export /data` is also a prefix of
	// /database.
	return std::any_of(beginnings_.begin(), beginnings_.end(),
			   [&](const std::string &each) { return path.rfind(each, 0) == 0; });
}

} // namespace dray
