#include "file.hh"

#include "own.hh"

#include <XrdOuc/XrdOucEnv.hh>

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dray {

bool is_copy(XrdOucEnv &env)
{
	return env.Get(tpc_key) || env.Get(http_copy);
}

std::string beside(const std::string &path)
{
	static std::atomic<unsigned> count{0};
	const auto folder = path.substr(0, path.rfind('/') + 1);
	return folder + nameless + std::to_string(getpid()) + "-" + std::to_string(count++);
}

File::File(XrdOss &storage, Copies &copies, const char *who, std::unique_ptr<XrdOssDF> inner)
    : XrdOssWrapDF(*inner), storage(storage), copies(copies), who(who), file(std::move(inner))
{
	dfType = file->DFType();
	tident = file->getTID();
}

File::~File()
{
	end();
}

void File::end()
{
	if (!target.empty())
		copies.closed(target);
	target.clear();
}

int File::Open(const char *path, int flags, mode_t mode, XrdOucEnv &env)
{
	try {
		if (is_kept_from(path, &env))
			return -ENOENT;
		const bool is_sink = (flags & O_ACCMODE) != O_RDONLY && is_copy(env);
		// Only the destination of a registered copy gets a placeholder. `Create` registers a copy,
		// but not if the destination is in an XRootD space. The file is then opened in the usual
		// way.
		return is_sink && copies.knows(path) ? open_nameless(path, mode, env)
						     : file->Open(path, flags, mode, env);
	} catch (...) {
		return -ENOMEM;
	}
}

int File::open_nameless(const char *path, mode_t mode, XrdOucEnv &env)
{
	had_old = storage.Stat(path, &old, 0, &env) == 0;
	const std::string name = beside(path);
	// The open call creates no file, so create the placeholder here and open it in the next
	// statement.
	const int made = storage.Create(who, name.c_str(), (mode & 0777) | S_IRUSR | S_IWUSR, env,
					(O_RDWR | O_CREAT | O_EXCL) << 8 | XRDOSS_new);
	if (made != XrdOssOK)
		return made;
	const int opened = file->Open(name.c_str(), O_RDWR, mode, env);
	// Delete the name now. The file disappears when its last descriptor is closed.
	const int gone = storage.Unlink(name.c_str(), 0, &env);
	if (opened != XrdOssOK)
		return opened;
	if (gone != XrdOssOK) {
		file->Close();
		return gone;
	}
	copies.opened(path);
	target = path;
	return XrdOssOK;
}

int File::Close(long long *size)
{
	const int code = file->Close(size);
	end();
	return code;
}

int File::Fstat(struct stat *state)
{
	if (!target.empty()) {
		// As soon as the copy is published, report the state of the published file.
		const bool is_there = storage.Stat(target.c_str(), state) == XrdOssOK;
		const auto same = [&] { return state->st_ino == old.st_ino && state->st_dev == old.st_dev; };
		if (is_there && !(had_old && same()))
			return XrdOssOK;
	}
	return file->Fstat(state);
}

// A client that opens the name for writing during a copy gets the placeholder of the copy. Fail its
// writes, which would otherwise be lost without an error.

int File::Ftruncate(unsigned long long size)
{
	return target.empty() ? file->Ftruncate(size) : -ETXTBSY;
}

ssize_t File::pgWrite(void *data, off_t at, size_t size, uint32_t *sums, uint64_t how)
{
	return target.empty() ? file->pgWrite(data, at, size, sums, how) : -ETXTBSY;
}

int File::pgWrite(XrdSfsAio *call, uint64_t how)
{
	return target.empty() ? file->pgWrite(call, how) : -ETXTBSY;
}

ssize_t File::Write(const void *data, off_t at, size_t size)
{
	return target.empty() ? file->Write(data, at, size) : -ETXTBSY;
}

int File::Write(XrdSfsAio *call)
{
	return target.empty() ? file->Write(call) : -ETXTBSY;
}

ssize_t File::WriteV(XrdOucIOVec *parts, int count)
{
	return target.empty() ? file->WriteV(parts, count) : -ETXTBSY;
}

} // namespace dray
