// The paths that a client may name. For other protocols, the server checks the path before it opens
// a file. But an HTTP handler gets any path, and the server's file system, authorisation and
// storage do not check it again. The check is needed because the rights depend on the prefix of a
// path, and `..` could lead out of the prefix.
#pragma once

#include <string>
#include <vector>

namespace dray {

class Exports {
public:
	// Parses the server's list of exports: prefixes of paths, separated by spaces.
	explicit Exports(const std::string &told);

	// Returns true if `path` starts with an exported prefix and contains no `.` or `..` component.
	bool reach(const std::string &path) const;

private:
	std::vector<std::string> beginnings_;
};

} // namespace dray
