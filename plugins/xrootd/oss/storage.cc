// A wrapper for the storage of an XRootD server. During a third-party copy, the destination name
// never refers to an incomplete file. When the server would create or truncate the destination
// file, the wrapper gives the server a file without a name. An existing file keeps the destination
// name until the program that carries out the copy replaces the file. Only dray's own clients see
// dray's own names. No exception leaves the functions that the server calls.

#include "copies.hh"
#include "file.hh"
#include "own.hh"

#include <XrdOuc/XrdOucEnv.hh>
#include <XrdSys/XrdSysError.hh>
#include <XrdSys/XrdSysLogger.hh>
#include <XrdVersion.hh>

#include <sys/param.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <new>
#include <string>

namespace {

using dray::Copies;
using dray::File;
using dray::Folder;
using dray::is_kept_from;

// Environment variable for the program of a third-party copy, which inherits the server's
// environment. It tells the program that the file with the destination name is not a placeholder.
constexpr const char *told_program = "DRAY_XROOTD_HIDES";

class Storage final : public XrdOssWrapper {
public:
	explicit Storage(XrdOss &inner) : XrdOssWrapper(inner) {}

	XrdOssDF *newFile(const char *who) override
	{
		std::unique_ptr<XrdOssDF> file(wrapPI.newFile(who));
		return file ? new (std::nothrow) File(wrapPI, copies, who, std::move(file)) : nullptr;
	}

	XrdOssDF *newDir(const char *who) override
	{
		std::unique_ptr<XrdOssDF> folder(wrapPI.newDir(who));
		return folder ? new (std::nothrow) Folder(std::move(folder)) : nullptr;
	}

	// For clients other than dray, dray's own names do not exist and cannot be created.

	int Chmod(const char *path, mode_t mode, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -ENOENT : wrapPI.Chmod(path, mode, env);
	}

	int Mkdir(const char *path, mode_t mode, int above, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -EACCES : wrapPI.Mkdir(path, mode, above, env);
	}

	int Remdir(const char *path, int how, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -ENOENT : wrapPI.Remdir(path, how, env);
	}

	int Rename(const char *from, const char *to, XrdOucEnv *env, XrdOucEnv *env_to) override
	{
		if (is_kept_from(from, env))
			return -ENOENT;
		return is_kept_from(to, env_to) ? -EACCES : wrapPI.Rename(from, to, env, env_to);
	}

	int Stat(const char *path, struct stat *state, int how, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -ENOENT : wrapPI.Stat(path, state, how, env);
	}

	int StatXA(const char *path, char *answer, int &size, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -ENOENT : wrapPI.StatXA(path, answer, size, env);
	}

	int Truncate(const char *path, unsigned long long size, XrdOucEnv *env) override
	{
		return is_kept_from(path, env) ? -ENOENT : wrapPI.Truncate(path, size, env);
	}

	// XRootD's own wrapper class does not pass on the argument `how`. Without this argument, new files
	// would replace existing files.
	int Create(const char *who, const char *path, mode_t mode, XrdOucEnv &env, int how) override
	{
		try {
			if (is_kept_from(path, &env))
				return -EACCES;
			if (dray::is_copy(env))
				return create_hidden(who, path, mode, env, how);
			if (!copies.yields(path))
				return -ETXTBSY;
			return wrapPI.Create(who, path, mode, env, how);
		} catch (...) {
			return -ENOMEM;
		}
	}

	// During a copy and shortly after it, ignore a deletion by the server itself (`autorm`, `--posc`).
	// Otherwise the server would delete the published file, which it believes to have created.
	int Unlink(const char *path, int how, XrdOucEnv *env) override
	{
		try {
			if (!env && copies.knows(path))
				return XrdOssOK;
			if (is_kept_from(path, env))
				return -ENOENT;
			return wrapPI.Unlink(path, how, env);
		} catch (...) {
			return -ENOMEM;
		}
	}

private:
	int create_hidden(const char *who, const char *path, mode_t mode, XrdOucEnv &env, int how)
	{
		struct stat state;
		const bool is_there = wrapPI.Stat(path, &state, 0, &env) == XrdOssOK;
		if (is_there && (how & XRDOSS_new))
			return -EEXIST;
		if (is_there && !S_ISREG(state.st_mode))
			return -EISDIR;
		if (!copies.prepare(path))
			return -ETXTBSY;
		// Create a file beside `path`, to check that files can be created there. Delete it at once,
		// because the server may still refuse the copy, and then makes no call that would delete
		// the file. The open call creates its own file.
		const std::string name = dray::beside(path);
		const int made = wrapPI.Create(who, name.c_str(), mode, env, how);
		if (made != XrdOssOK)
			return made;
		const bool is_link = lies_in_space(name.c_str());
		const int gone = wrapPI.Unlink(name.c_str(), 0, &env);
		if (gone != XrdOssOK)
			return gone;
		if (is_link || (is_there && lies_in_space(path))) {
			// Create the file in the usual way, because it is in an XRootD space. The server creates
			// a link to the file in the space, and the program of the copy follows the link.
			copies.yields(path);
			return wrapPI.Create(who, path, mode, env, how);
		}
		return XrdOssOK;
	}

	bool lies_in_space(const char *path)
	{
		char real[MAXPATHLEN + 8];
		struct stat state;
		return wrapPI.Lfn2Pfn(path, real, MAXPATHLEN) == XrdOssOK && lstat(real, &state) == 0 &&
		       S_ISLNK(state.st_mode);
	}

	Copies copies;
};

} // namespace

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdOssAddStorageSystem2, DrayXrdOss)
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) XrdOss *
XrdOssAddStorageSystem2(XrdOss *inner, XrdSysLogger *logger, const char *, const char *, XrdOucEnv *)
{
	XrdSysError say(logger, "dray_");
	Storage *storage = new (std::nothrow) Storage(*inner);
	if (!storage || XrdOucEnv::Export(told_program, "1") != 0) {
		say.Emsg("oss", "cannot hide third-party copies: out of memory");
		delete storage;
		return nullptr;
	}
	say.Say("dray hides third-party copies until they are complete, and hides dray's own files");
	return storage;
}
