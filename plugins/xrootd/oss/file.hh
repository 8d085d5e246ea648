// A file of the server's storage, or what stands in for one while a third-party copy runs.
#pragma once

#include "copies.hh"
#include "hidden.hh"

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>
#include <string>
#include <sys/stat.h>

class XrdOucEnv;

namespace dray {

// Both ends of a third-party copy are opened with this parameter, the destination to be written.
constexpr const char *tpc_key = "tpc.key";

// Whether a file is opened for a third-party copy that dray does.
bool is_copy(XrdOucEnv &env);

// A path in the folder of `path` that nobody else uses.
std::string beside(const std::string &path);

// See the file's head. What stands in has no name, keeps no bytes and takes none: the copy's program
// writes elsewhere, and gives the name in one step.
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
	// The name that is copied to; empty: an ordinary file.
	std::string target;
	// What had that name when the copy began.
	bool had_old = false;
	struct stat old = {};
};

} // namespace dray
