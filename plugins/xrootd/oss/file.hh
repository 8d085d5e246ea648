// A file of the server's storage, or its placeholder during a third-party copy.
#pragma once

#include "copies.hh"
#include "hidden.hh"

#include <XrdOss/XrdOssWrapper.hh>

#include <memory>
#include <string>
#include <sys/stat.h>

class XrdOucEnv;

namespace dray {

// Parameter with which both ends of a third-party copy are opened, the destination for writing.
constexpr const char *tpc_key = "tpc.key";

// Returns true if a file is opened for a third-party copy by dray.
bool is_copy(XrdOucEnv &env);

// Returns an unused path in the folder of `path`.
std::string beside(const std::string &path);

// A file or a placeholder. A placeholder has no name, holds no bytes and accepts none: the copy's
// program writes another file, and gives it the name in one step.
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
	// Destination name of the copy; empty for an ordinary file.
	std::string target;
	// State of the file that had that name when the copy began.
	bool had_old = false;
	struct stat old = {};
};

} // namespace dray
