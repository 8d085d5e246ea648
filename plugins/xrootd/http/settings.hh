// The administrator's settings of copies: a small file, named after the plug-in in the server's
// configuration. Every setting has a default; the file is optional.
#pragma once

#include <string>

namespace dray {

struct Settings {
	// The program of a copy.
	std::string program = "/usr/bin/dray-xrootd-tpc";
	// Path of the program's own configuration; empty for none.
	std::string config;
	// Seconds between two markers.
	int marker_seconds = 5;
	// Maximum seconds without output of a copy's program, which reports its counters regularly.
	int silence_seconds = 600;
	// Maximum number of concurrent copies; further ones are refused with a status to retry later. A
	// thread of the server waits for each.
	int copies_max = 64;
};

// Reads the file at `path`: lines of a word and its value, # begins a comment. Throws
// std::runtime_error that names the wrong line.
Settings read_settings(const std::string &path);

} // namespace dray
