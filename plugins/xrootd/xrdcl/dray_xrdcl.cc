// Implements the functions that dray_xrdcl.h describes. Each function makes one call of XrdCl and
// converts the answer. This file makes no decisions.

#include "common.hh"

#include <XProtocol/XProtocol.hh>
#include <XrdCl/XrdClBuffer.hh>
#include <XrdCl/XrdClDefaultEnv.hh>
#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClURL.hh>

#include <algorithm>
#include <cstring>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

// Returns the error kind for a message. Servers use one error number for many system errors, and
// the message is the text of strerror.
int32_t kind_of_words(const std::string &words)
{
	if (words.find("not empty") != std::string::npos)
		return DRAY_XRDCL_EXISTS;
	if (words.find("read/only") != std::string::npos)
		return DRAY_XRDCL_READ_ONLY;
	if (words.find("ot a directory") != std::string::npos)
		return DRAY_XRDCL_NOT_A_DIRECTORY;
	return DRAY_XRDCL_IO;
}

int32_t kind_of_answer(uint32_t number, const std::string &words)
{
	switch (number) {
	case kXR_NotFound:
		return DRAY_XRDCL_NOT_FOUND;
	case kXR_NotAuthorized:
		return DRAY_XRDCL_PERMISSION_DENIED;
	case kXR_fsReadOnly:
		return DRAY_XRDCL_READ_ONLY;
	case kXR_ItExists:
		return DRAY_XRDCL_EXISTS;
	case kXR_NoSpace:
	case kXR_overQuota:
		return DRAY_XRDCL_NO_SPACE;
	case kXR_FileLocked:
		return DRAY_XRDCL_LOCKED;
	case kXR_AttrNotFound:
		return DRAY_XRDCL_NO_ATTRIBUTE;
	case kXR_ArgTooLong:
		return DRAY_XRDCL_NAME_TOO_LONG;
	case kXR_AuthFailed:
	case kXR_TLSRequired:
		return DRAY_XRDCL_UNAUTHORIZED;
	case kXR_isDirectory:
		return DRAY_XRDCL_IS_A_DIRECTORY;
	case kXR_Unsupported:
		return DRAY_XRDCL_UNSUPPORTED;
	case kXR_IOError:
		return DRAY_XRDCL_IO;
	case kXR_FSError:
		return kind_of_words(words);
	case kXR_Overloaded:
	case kXR_NoMemory:
		return DRAY_XRDCL_BUSY;
	case kXR_ChkSumErr:
		return DRAY_XRDCL_CHECKSUM;
	case kXR_ArgInvalid:
	case kXR_ArgMissing:
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
		return kind_of_answer(status.errNo, status.GetErrorMessage());
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
	case XrdCl::errInvalidSession: // the server has restarted and lost the session
	case XrdCl::errOperationInterrupted:
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

} // namespace

namespace dray {

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

int32_t missing(dray_xrdcl_error *error)
{
	return fail(error, DRAY_XRDCL_OTHER, "the server did not answer the request");
}

int32_t answered(const std::string &text, char *answer, uint32_t answer_bytes, dray_xrdcl_error *error)
{
	if (answer_bytes == 0)
		return missing(error);
	size_t length = std::min<size_t>(text.size(), answer_bytes - 1);
	std::memcpy(answer, text.data(), length);
	answer[length] = '\0';
	return 0;
}

int32_t ask(const char *url, XrdCl::QueryCode::Code code, const char *what, char *answer,
            uint32_t answer_bytes, dray_xrdcl_error *error)
{
	XrdCl::FileSystem server{XrdCl::URL(url), false};
	XrdCl::Buffer argument;
	argument.FromString(what);
	Answer<XrdCl::Buffer> response;
	auto status = server.Query(code, argument, response.info);
	if (!status.IsOK())
		return fail(error, status);
	if (!response.info)
		return missing(error);
	return answered(response.info->ToString(), answer, answer_bytes, error);
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
	// XrdCl stores the id as text. It is a number, or 0 for any other text.
	state->id = std::strtoull(from.GetId().c_str(), nullptr, 10);
}

} // namespace dray

namespace {

// Minimum timeout in seconds for opening a file with the key of a third-party copy. The server
// delays the answer until the client has registered the key (7 s by default, at most 15 s:
// XrdOfsTPCConfig.hh of XRootD 5.5). It also delays the answer until a file on tape has been
// fetched. If the request timeout of XrdCl is longer, that timeout applies.
constexpr int keyed_open_seconds_min = 60;

uint16_t keyed_open_seconds()
{
	int seconds = 0;
	XrdCl::DefaultEnv::GetEnv()->GetInt("RequestTimeout", seconds);
	return static_cast<uint16_t>(std::clamp(seconds, keyed_open_seconds_min, 65535));
}

// Returns true if a URL contains the key of a third-party copy.
bool is_keyed(const std::string &url)
{
	const auto query = url.find('?');
	return query != std::string::npos && url.find("tpc.key=", query) != std::string::npos;
}

// Closes a file in the background. The object deletes itself when the answer has arrived.
class Closing final : public XrdCl::ResponseHandler
{
  public:
	static void begin(std::unique_ptr<dray_xrdcl_file> file)
	{
		auto closing = std::make_unique<Closing>();
		closing->m_file = std::move(file);
		auto status = closing->m_file->file.Close(closing.get(), close_seconds);
		if (status.IsOK())
			closing.release(); // the object deletes itself when the answer arrives
	}

	void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override
	{
		delete status;
		delete response;
		delete this;
	}

  private:
	static constexpr uint16_t close_seconds = 20;
	std::unique_ptr<dray_xrdcl_file> m_file;
};

} // namespace

using namespace dray;

extern "C" {

DRAY_EXPORT uint32_t dray_xrdcl_version(void)
{
	return DRAY_XRDCL_VERSION;
}

DRAY_EXPORT int32_t dray_xrdcl_set(const char *name, int32_t value)
{
	return guarded(nullptr, [&]() -> int32_t {
		// PutInt returns false if the environment of the process sets the value. The environment
		// takes precedence.
		XrdCl::DefaultEnv::GetEnv()->PutInt(name, value);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_open(const char *url, uint32_t how, uint32_t mode, uint32_t seconds,
                                    dray_xrdcl_file **file, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		auto opened = std::make_unique<dray_xrdcl_file>();
		const std::string named = url;
		auto flags = XrdCl::OpenFlags::Read;
		if (how & (DRAY_XRDCL_UPDATE | DRAY_XRDCL_NEW)) {
			flags = XrdCl::OpenFlags::Update;
			// XrdCl must report a lost connection as an error and must not reopen the handle,
			// because writes may be lost with the connection.
			opened->file.SetProperty("WriteRecovery", "false");
		}
		if (how & DRAY_XRDCL_NEW)
			flags |= XrdCl::OpenFlags::New;
		if (how & DRAY_XRDCL_SHARED)
			flags |= XrdCl::OpenFlags::Force;
		uint16_t limit = limit_of(seconds);
		// Do not let XrdCl retry this server for minutes, because other servers have the file.
		opened->is_replica = (how & DRAY_XRDCL_REPLICA) != 0;
		if (opened->is_replica)
			opened->file.SetProperty("ReadRecovery", "false");
		if (is_keyed(named)) {
			// The key permits one opening. A server would keep a second opening with the same key
			// waiting for minutes, until a client registers the key, which has already happened.
			opened->file.SetProperty("ReadRecovery", "false");
			limit = keyed_open_seconds();
		}
		auto access = static_cast<XrdCl::Access::Mode>(mode);
		auto status = opened->file.Open(named, flags, access, limit);
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
		if (closing->is_replica) {
			Closing::begin(std::move(closing));
			return 0;
		}
		// Ignore the result. The caller has synced all data that must be kept, so a failed close
		// loses nothing.
		[[maybe_unused]] auto status = closing->file.Close();
		return 0;
	});
}

DRAY_EXPORT int64_t dray_xrdcl_read(dray_xrdcl_file *file, uint64_t offset, void *to, uint32_t bytes,
                                    int32_t pages, uint32_t seconds, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int64_t {
		const auto limit = limit_of(seconds);
		uint32_t came = 0;
		XrdCl::XRootDStatus status;
		if (pages) {
			std::vector<uint32_t> sums;
			status = file->file.PgRead(offset, bytes, to, sums, came, limit);
		} else {
			status = file->file.Read(offset, bytes, to, came, limit);
		}
		if (!status.IsOK())
			return fail(error, status);
		return static_cast<int64_t>(came);
	});
}

DRAY_EXPORT int32_t dray_xrdcl_state_of(dray_xrdcl_file *file, int32_t anew, uint32_t seconds,
                                        dray_xrdcl_state *state, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		Answer<XrdCl::StatInfo> answer;
		auto status = file->file.Stat(anew != 0, answer.info, limit_of(seconds));
		if (!status.IsOK())
			return fail(error, status);
		if (!answer.info)
			return missing(error);
		fill(*answer.info, state);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_server_of(dray_xrdcl_file *file, char *answer, uint32_t answer_bytes,
                                         dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		std::string host;
		if (!file->file.GetProperty("DataServer", host))
			return missing(error);
		XrdCl::URL url(host);
		return answered(url.GetHostName() + ":" + std::to_string(url.GetPort()), answer, answer_bytes, error);
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
		// List only this folder, because the caller decides which folders to enter. Locate lists
		// the folder on all servers of a cluster.
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
		// XrdCl reports success if at least one server of a cluster has listed the folder. Report
		// an error if other servers have not, because the list may be incomplete.
		if (status.code == XrdCl::suPartial)
			return fail(error, DRAY_XRDCL_UNREACHABLE, "not all servers of the cluster have listed the folder");
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_checksum(const char *url, const char *query, char *answer,
                                        uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		return ask(url, XrdCl::QueryCode::Checksum, query, answer, answer_bytes, error);
	});
}

DRAY_EXPORT int32_t dray_xrdcl_ask(dray_xrdcl_file *file, const char *question, uint32_t seconds,
                                   char *answer, uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::Buffer argument;
		argument.FromString(question);
		Answer<XrdCl::Buffer> response;
		auto status = file->file.Fcntl(argument, response.info, limit_of(seconds));
		if (!status.IsOK())
			return fail(error, status);
		std::string text = response.info ? response.info->ToString() : "";
		if (text.size() >= answer_bytes)
			return fail(error, DRAY_XRDCL_OTHER, "the server's answer is too long");
		std::memcpy(answer, text.c_str(), text.size() + 1);
		return 0;
	});
}

} // extern "C"
