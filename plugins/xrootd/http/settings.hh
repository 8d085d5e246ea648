// What the server's administrator says of the copies: a small file, named after the plug-in in the
// server's configuration. Without one everything has a default.
#pragma once

#include <string>

namespace dray {

struct Settings {
	// The program that carries a copy.
	std::string program = "/usr/bin/dray-xrootd-tpc";
	// The program's own configuration, handed to it; empty for none.
	std::string config;
	// Seconds between two markers.
	int marker_seconds = 5;
	// Seconds for which a copy's program may say nothing: it tells its counters all along.
	int silence_seconds = 600;
	// Copies at once; one more is told to come later. A thread of the server waits for each.
	int copies_max = 64;
};

// Reads the file at `path`: lines of a word and its value, # begins a comment. Throws
// std::runtime_error that says which line is wrong.
Settings read_settings(const std::string &path);

} // namespace dray
