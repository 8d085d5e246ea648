// See dray_xrdcl.h. Nothing is decided here: each call is one call of XrdCl, its answer in plain words.

#include "dray_xrdcl.h"

#include <XProtocol/XProtocol.hh>
#include <XrdCl/XrdClBuffer.hh>
#include <XrdCl/XrdClDefaultEnv.hh>
#include <XrdCl/XrdClFile.hh>
#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClStatus.hh>
#include <XrdCl/XrdClURL.hh>
#include <XrdCl/XrdClXRootDResponses.hh>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

// Everything else of this library is hidden, by -fvisibility=hidden.
#define DRAY_EXPORT __attribute__((visibility("default")))

struct dray_xrdcl_file {
	// false: client plug-ins of the host are not asked; one of ours would come round in a circle.
	XrdCl::File file{false};
};

namespace {

int32_t kind_of_answer(uint32_t number)
{
	switch (number) {
	case kXR_NotFound:
		return DRAY_XRDCL_NOT_FOUND;
	case kXR_NotAuthorized:
	case kXR_fsReadOnly:
		return DRAY_XRDCL_PERMISSION_DENIED;
	case kXR_AuthFailed:
	case kXR_TLSRequired:
		return DRAY_XRDCL_UNAUTHORIZED;
	case kXR_isDirectory:
		return DRAY_XRDCL_IS_A_DIRECTORY;
	case kXR_Unsupported:
		return DRAY_XRDCL_UNSUPPORTED;
	case kXR_IOError:
	case kXR_FSError:
		return DRAY_XRDCL_IO;
	case kXR_Overloaded:
	case kXR_NoMemory:
	case kXR_FileLocked:
		return DRAY_XRDCL_BUSY;
	case kXR_ChkSumErr:
		return DRAY_XRDCL_CHECKSUM;
	case kXR_ArgInvalid:
	case kXR_ArgMissing:
	case kXR_ArgTooLong:
	case kXR_InvalidRequest:
	case kXR_NotFile:
		return DRAY_XRDCL_INVALID;
	default:
		return DRAY_XRDCL_OTHER;
	}
}

int32_t kind_of(const XrdCl::XRootDStatus &status)
{
	switch (status.code) {
	case XrdCl::errErrorResponse:
		return kind_of_answer(status.errNo);
	case XrdCl::errAuthFailed:
	case XrdCl::errTlsError:
	case XrdCl::errLoginFailed:
		return DRAY_XRDCL_UNAUTHORIZED;
	case XrdCl::errSocketTimeout:
	case XrdCl::errOperationExpired:
		return DRAY_XRDCL_TIMED_OUT;
	case XrdCl::errInvalidAddr:
	case XrdCl::errSocketError:
	case XrdCl::errSocketDisconnected:
	case XrdCl::errStreamDisconnect:
	case XrdCl::errConnectionError:
	case XrdCl::errHandShakeFailed:
	case XrdCl::errNoMoreFreeSIDs:
	case XrdCl::errRedirectLimit:
	case XrdCl::errPollerError:
		return DRAY_XRDCL_UNREACHABLE;
	case XrdCl::errNotSupported:
	case XrdCl::errNotImplemented:
		return DRAY_XRDCL_UNSUPPORTED;
	case XrdCl::errCheckSumError:
	case XrdCl::errDataError:
		return DRAY_XRDCL_CHECKSUM;
	case XrdCl::errInvalidArgs:
	case XrdCl::errInvalidOp:
		return DRAY_XRDCL_INVALID;
	case XrdCl::errOSError:
		return DRAY_XRDCL_IO;
	default:
		return DRAY_XRDCL_OTHER;
	}
}

int32_t fail(dray_xrdcl_error *error, int32_t kind, const char *words)
{
	if (error) {
		error->kind = kind;
		std::strncpy(error->words, words, sizeof error->words - 1);
		error->words[sizeof error->words - 1] = '\0';
	}
	return -1;
}

int32_t fail(dray_xrdcl_error *error, const XrdCl::XRootDStatus &status)
{
	return fail(error, kind_of(status), status.ToStr().c_str());
}

// Nothing that XrdCl or the library of C++ throws goes further.
template <typename Call> auto guarded(dray_xrdcl_error *error, Call call) noexcept -> decltype(call())
{
	try {
		return call();
	} catch (const std::exception &caught) {
		return fail(error, DRAY_XRDCL_INTERNAL, caught.what());
	} catch (...) {
		return fail(error, DRAY_XRDCL_INTERNAL, "the XRootD client threw something");
	}
}

void fill(const XrdCl::StatInfo &from, dray_xrdcl_state *state)
{
	state->size = from.GetSize();
	state->modified = static_cast<int64_t>(from.GetModTime());
	state->flags = 0;
	if (from.TestFlags(XrdCl::StatInfo::IsDir))
		state->flags |= DRAY_XRDCL_DIRECTORY;
	if (from.TestFlags(XrdCl::StatInfo::Other))
		state->flags |= DRAY_XRDCL_SPECIAL;
	state->zero = 0;
}

// XrdCl gives out what it answers; it is ours then.
template <typename Info> struct Answer {
	Info *info = nullptr;
	~Answer() { delete info; }
};

int32_t missing(dray_xrdcl_error *error)
{
	return fail(error, DRAY_XRDCL_OTHER, "the server gave no answer to what it was asked");
}

} // namespace

extern "C" {

DRAY_EXPORT uint32_t dray_xrdcl_version(void)
{
	return DRAY_XRDCL_VERSION;
}

DRAY_EXPORT int32_t dray_xrdcl_set(const char *name, int32_t value)
{
	return guarded(nullptr, [&]() -> int32_t {
		// False when the environment of the process says otherwise, which wins.
		XrdCl::DefaultEnv::GetEnv()->PutInt(name, value);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_open(const char *url, dray_xrdcl_file **file, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		auto opened = std::make_unique<dray_xrdcl_file>();
		auto status = opened->file.Open(std::string(url), XrdCl::OpenFlags::Read);
		if (!status.IsOK())
			return fail(error, status);
		*file = opened.release();
		return 0;
	});
}

DRAY_EXPORT void dray_xrdcl_close(dray_xrdcl_file *file)
{
	guarded(nullptr, [&]() -> int32_t {
		std::unique_ptr<dray_xrdcl_file> closing(file);
		// Of a file that was only read, a close that fails loses nothing.
		[[maybe_unused]] auto status = closing->file.Close();
		return 0;
	});
}

DRAY_EXPORT int64_t dray_xrdcl_read(dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                                    int32_t pages, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int64_t {
		uint32_t came = 0;
		XrdCl::XRootDStatus status;
		if (pages) {
			std::vector<uint32_t> sums;
			status = file->file.PgRead(offset, bytes, to, sums, came);
		} else {
			status = file->file.Read(offset, bytes, to, came);
		}
		if (!status.IsOK())
			return fail(error, status);
		return static_cast<int64_t>(came);
	});
}

DRAY_EXPORT int32_t dray_xrdcl_state_of(dray_xrdcl_file *file, int32_t anew, dray_xrdcl_state *state,
                                        dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		Answer<XrdCl::StatInfo> answer;
		auto status = file->file.Stat(anew != 0, answer.info);
		if (!status.IsOK())
			return fail(error, status);
		if (!answer.info)
			return missing(error);
		fill(*answer.info, state);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_look(const char *url, const char *path, dray_xrdcl_state *state,
                                    dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		Answer<XrdCl::StatInfo> answer;
		auto status = server.Stat(path, answer.info);
		if (!status.IsOK())
			return fail(error, status);
		if (!answer.info)
			return missing(error);
		fill(*answer.info, state);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_list(const char *url, const char *path, dray_xrdcl_entry take,
                                    void *context, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		Answer<XrdCl::DirectoryList> answer;
		// Recursion is the caller's: it decides what is entered. Locate: of a cluster, all its servers.
		auto flags = XrdCl::DirListFlags::Stat | XrdCl::DirListFlags::Locate;
		auto status = server.DirList(path, flags, answer.info);
		if (!status.IsOK())
			return fail(error, status);
		if (!answer.info)
			return missing(error);
		for (auto entry = answer.info->Begin(); entry != answer.info->End(); ++entry) {
			dray_xrdcl_state state = {};
			if (auto *info = (*entry)->GetStatInfo())
				fill(*info, &state);
			else
				state.flags = DRAY_XRDCL_SPECIAL;
			const std::string &name = (*entry)->GetName();
			if (take(context, name.data(), name.size(), &state) != 0)
				return 0;
		}
		// XrdCl calls it success as long as one server of a cluster has listed it.
		if (status.code == XrdCl::suPartial)
			return fail(error, DRAY_XRDCL_UNREACHABLE, "not all servers of the cluster have listed it");
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer,
                                        uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		XrdCl::Buffer argument;
		argument.FromString(query);
		Answer<XrdCl::Buffer> response;
		auto status = server.Query(XrdCl::QueryCode::Checksum, argument, response.info);
		if (!status.IsOK())
			return fail(error, status);
		if (!response.info || answer_bytes == 0)
			return missing(error);
		std::string text = response.info->ToString();
		size_t length = std::min<size_t>(text.size(), answer_bytes - 1);
		std::memcpy(answer, text.data(), length);
		answer[length] = '\0';
		return 0;
	});
}

} // extern "C"
