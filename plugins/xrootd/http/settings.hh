// The administrator's settings for copies. They are in a small file. The server's configuration
// gives the path of this file after the name of the plug-in. The file is optional, because every
// setting has a default.
#pragma once

#include <string>

namespace dray {

struct Settings {
	// Path of the program that does a copy.
	std::string program = "/usr/bin/dray-xrootd-tpc";
	// Path of the program's configuration file; empty for none.
	std::string config;
	// Seconds between two progress markers.
	int marker_seconds = 5;
	// Maximum seconds without output of the program. The program reports its progress regularly.
	int silence_seconds = 600;
	// Maximum number of concurrent copies. Further copies are refused with a status that tells the
	// client to retry later. Each copy occupies a thread of the server.
	int copies_max = 64;
};

// Reads the file at `path`. Each line has a word and its value, and # starts a comment. Throws
// std::runtime_error that contains the invalid line.
Settings read_settings(const std::string &path);

} // namespace dray
