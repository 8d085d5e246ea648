// A wrapper of an XRootD server's storage: during a third-party copy the destination name never
// refers to an incomplete file. Where the server would make or truncate the file, the wrapper gives
// it a file without a name; an existing file keeps the name until the copy's program replaces it.
// Only dray sees dray's own names. Nothing is thrown past the entry point, nor past the functions
// called through it.

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

// Environment variable for the third-party copy program, which inherits the server's environment:
// it means that the file of the destination name is no placeholder.
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

	// For a client other than dray, dray's own names do not exist, and it cannot create them.

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

	// XRootD's own wrapper does not pass `how` on: new files would then replace old ones.
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

	// A client's removal is executed. A removal by the server itself (`autorm`, `--posc`) is meant
	// for the file that it believes to have made for a copy, and is ignored.
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
		// Test that a file can be made here by making one. The server may still refuse the copy
		// without a call, so the file is removed again; the opening makes its own.
		const std::string name = dray::beside(path);
		const int made = wrapPI.Create(who, name.c_str(), mode, env, how);
		if (made != XrdOssOK)
			return made;
		const bool is_link = lies_in_space(name.c_str());
		const int gone = wrapPI.Unlink(name.c_str(), 0, &env);
		if (gone != XrdOssOK)
			return gone;
		if (is_link || (is_there && lies_in_space(path))) {
			// The program finds the space through the link that the server makes.
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
		say.Emsg("oss", "cannot hide third-party copies, memory is short");
		delete storage;
		return nullptr;
	}
	say.Say("dray hides third-party copies until they are whole, and its own files");
	return storage;
}
