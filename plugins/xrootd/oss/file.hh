// A file in the server's storage, or a placeholder during a third-party copy.
#pragma once

#include "copies.hh"
#include "hidden.hh"

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>
#include <string>
#include <sys/stat.h>

class XrdOucEnv;

namespace dray {

// URL parameter of both ends of a third-party copy. The destination is opened for writing.
constexpr const char *tpc_key = "tpc.key";

// Returns true if the file is opened for a third-party copy that dray does.
bool is_copy(XrdOucEnv &env);

// Returns the path of an unused name in the folder of `path`.
std::string beside(const std::string &path);

// A file or a placeholder. A placeholder has no name and no content, and all writes to it fail. The
// program of the copy writes another file and gives that file the destination name in one step.
class File final : public XrdOssWrapDF {
public:
	File(XrdOss &storage, Copies &copies, const char *who, std::unique_ptr<XrdOssDF> file);
	~File() override;

	int Open(const char *path, int flags, mode_t mode, XrdOucEnv &env) override;
	int Close(long long *size = nullptr) override;
	int Fstat(struct stat *state) override;

	int Ftruncate(unsigned long long size) override;
	ssize_t pgWrite(void *data, off_t at, size_t size, uint32_t *sums, uint64_t how) override;
	int pgWrite(XrdSfsAio *call, uint64_t how) override;
	ssize_t Write(const void *data, off_t at, size_t size) override;
	int Write(XrdSfsAio *call) override;
	ssize_t WriteV(XrdOucIOVec *parts, int count) override;

private:
	int open_nameless(const char *path, mode_t mode, XrdOucEnv &env);
	void end();

	XrdOss &storage;
	Copies &copies;
	const char *who;
	std::unique_ptr<XrdOssDF> file;
	// Path of the copy's destination; empty for an ordinary file.
	std::string target;
	// State of the file that had the destination name when the copy began.
	bool had_old = false;
	struct stat old = {};
};

} // namespace dray
