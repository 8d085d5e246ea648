// The server's side of HTTP third-party copies by dray: takes COPY, opens the local file as the client
// would, so that who may do what stays the server's to say, and lets a program of its own carry the
// bytes. Nothing is thrown past ProcessReq and the entry point.

#include "compat.hh"
#include "copy.hh"

#include <XrdHttp/XrdHttpExtHandler.hh>
#include <XrdNet/XrdNetAddr.hh>
#include <XrdOuc/XrdOucEnv.hh>
#include <XrdOuc/XrdOucErrInfo.hh>
#include <XrdSec/XrdSecEntity.hh>
#include <XrdSfs/XrdSfsInterface.hh>
#include <XrdSys/XrdSysError.hh>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

using dray::Refusal;

// Seconds that the server is let to find a file (a cluster's manager asks around), all told.
constexpr int stall_seconds_max = 60;
// A file of ours is for its owner to write and for all to read, as the server's own are.
constexpr mode_t file_mode = 0644;

struct Redirect {
	std::string location;
};

// A value as it may stand in a query.
std::string quoted(const std::string &text)
{
	static const char digits[] = "0123456789ABCDEF";
	std::string out;
	for (unsigned char c : text) {
		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    std::strchr("-._~", c))
			out += static_cast<char>(c);
		else
			(out += '%') += {digits[c >> 4], digits[c & 15]};
	}
	return out;
}

std::string header(const XrdHttpExtReq &request, const char *name)
{
	for (const auto &[known, value] : request.headers)
		if (strcasecmp(known.c_str(), name) == 0)
			return value;
	return "";
}

// What the server's own plug-ins are told of who asks.
std::string opaque(const XrdHttpExtReq &request)
{
	std::string query = header(request, "xrd-http-query");
	std::string authorization = header(request, "Authorization");
	bool is_told = query.find("authz=") != std::string::npos;
	if (authorization.empty() || is_told)
		return query;
	return query + (query.empty() ? "" : "&") + "authz=" + quoted(authorization);
}

int status_of(int error)
{
	switch (error) {
	case ENOENT:
		return 404;
	case EACCES:
	case EPERM:
	case EROFS:
		return 403;
	case EISDIR:
	case ENOTDIR:
		return 409;
	case EBUSY:
	case ETXTBSY:
		return 423;
	case ENOSPC:
	case EDQUOT:
		return 507;
	default:
		return 500;
	}
}

// The client's socket; -1 when it cannot be told. HTTP clients have no address noted in their entity,
// but the server calls each connection USER.PID:SOCKET@HOST.
int socket_of(XrdHttpExtReq &request)
{
	std::string name;
	request.GetClientID(name);
	auto colon = name.find(':');
	int file = -1;
	if (colon != std::string::npos) {
		const char *number = name.c_str() + colon + 1;
		char *end = nullptr;
		long read = std::strtol(number, &end, 10);
		if (end != number && *end == '@' && read > 2 && read < INT_MAX)
			file = static_cast<int>(read);
	}
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;
	bool is_connected = file >= 0 && getpeername(file, reinterpret_cast<sockaddr *>(&peer), &length) == 0;
	return is_connected ? file : -1;
}

// What the server's file system is told of the client's network: by it a cluster's manager chooses a
// server that the client can reach.
int reach(int client)
{
	int reach = XrdOucEI::uUrlOK;
	XrdNetAddr address;
	if (client < 0 || address.Set(client) != nullptr)
		return reach;
	bool is_old = address.isIPType(XrdNetAddrInfo::IPv4) || address.isMapped();
	return reach | (is_old ? XrdOucEI::uIPv4 : 0) | (address.isPrivate() ? XrdOucEI::uPrip : 0);
}

// A file of the server, opened as its client may, and closed whatever happens.
class LocalFile {
public:
	LocalFile(XrdSfsFileSystem &files, XrdHttpExtReq &request)
		: request_(request), opaque_(opaque(request)),
		  file_(files.newFile(const_cast<char *>(request.GetSecEntity().tident), 0))
	{
		if (!file_)
			throw Refusal(503, "the server has no room for one more file");
		file_->error.setUCap(reach(socket_of(request)));
	}

	~LocalFile()
	{
		if (is_open_)
			file_->close();
	}

	// To be read.
	void open_source()
	{
		if (int error = open(SFS_O_RDONLY, 0))
			throw Refusal(status_of(error), said());
	}

	// To be written. A file that stands there is not truncated: it is replaced when the copy is
	// complete.
	void open_sink(bool may_overwrite)
	{
		int error = open(SFS_O_CREAT | SFS_O_RDWR, file_mode | SFS_O_MKPTH);
		is_made_ = error == 0;
		if (error == EEXIST && !may_overwrite)
			throw Refusal(412, "a file stands there and Overwrite is F");
		if (error == EEXIST)
			error = open(SFS_O_RDWR, 0);
		if (error != 0)
			throw Refusal(status_of(error), said());
	}

	// Where it lies for a program that opens it itself.
	std::string find()
	{
		int file = -1;
		if (file_->fctl(SFS_FCTL_GETFD, nullptr, file_->error) == SFS_OK)
			file = file_->error.getErrInfo();
		char path[PATH_MAX];
		std::string link = "/proc/self/fd/" + std::to_string(file);
		ssize_t length = file < 0 ? -1 : readlink(link.c_str(), path, sizeof path);
		struct stat named;
		bool is_whole = length > 0 && length < static_cast<ssize_t>(sizeof path);
		if (is_whole)
			path_.assign(path, static_cast<size_t>(length));
		if (!is_whole || fstat(file, &opened_) != 0 || !S_ISREG(opened_.st_mode) ||
		    stat(path_.c_str(), &named) != 0 || !is_opened(named))
			throw Refusal(501, "the storage of this server has no files that dray can open");
		return path_;
	}

	// After a failure: the empty file that opening made is nobody's. Another copy may publish its own
	// under the name between a look and a removal, so what is removed is moved aside and looked at
	// there; where that was another's it gets its name back, unless somebody has taken it.
	void forget(XrdSysError &log)
	{
		if (!is_made_ || path_.empty() || !is_own_and_empty(path_))
			return;
		static std::atomic<unsigned> number{0};
		std::string aside = path_.substr(0, path_.rfind('/') + 1) + ".dray-forget-" +
				    std::to_string(getpid()) + "-" + std::to_string(number++);
		if (rename(path_.c_str(), aside.c_str()) != 0)
			return;
		bool is_settled = is_own_and_empty(aside) || link(aside.c_str(), path_.c_str()) == 0;
		if (!is_settled && errno != EEXIST && rename(aside.c_str(), path_.c_str()) == 0)
			return;
		if (is_settled)
			unlink(aside.c_str());
		else
			log.Emsg("dray", "a complete file has lost its name to another, it lies at",
				 dray::one_line(aside).c_str());
	}

private:
	bool is_opened(const struct stat &other) const
	{
		return other.st_dev == opened_.st_dev && other.st_ino == opened_.st_ino;
	}

	bool is_own_and_empty(const std::string &path) const
	{
		struct stat found;
		return stat(path.c_str(), &found) == 0 && is_opened(found) && found.st_size == 0;
	}

	// Opens it; the system's number of the error, or 0. Throws Redirect when it lies elsewhere.
	int open(XrdSfsFileOpenMode how, mode_t mode)
	{
		for (int waited = 0;;) {
			int answer = file_->open(request_.resource.c_str(), how, mode, &request_.GetSecEntity(),
						 opaque_.c_str());
			int number = 0;
			std::string text = file_->error.getErrText(number) ? file_->error.getErrText() : "";
			if (answer == SFS_OK) {
				is_open_ = true;
				return 0;
			}
			if (answer == SFS_REDIRECT)
				throw redirect(text, number);
			if (answer == SFS_STARTED || answer > 0) {
				int seconds = answer > 0 ? answer : 1;
				waited += seconds;
				if (waited > stall_seconds_max)
					throw Refusal(503, "the server does not find the file in time");
				sleep(static_cast<unsigned>(seconds));
				continue;
			}
			return number != 0 ? number : EIO;
		}
	}

	Redirect redirect(const std::string &text, int port) const
	{
		std::string host = text.substr(0, text.find('?'));
		if (host.find("://") != std::string::npos)
			return {host};
		std::string scheme = header(request_, "xrd-http-prot");
		std::string location = (scheme.empty() ? "http" : scheme) + "://" + host;
		if (port > 0)
			location += ":" + std::to_string(port);
		std::string query = header(request_, "xrd-http-query");
		return {location + request_.resource + (query.empty() ? "" : "?" + query)};
	}

	std::string said() const
	{
		const char *text = file_->error.getErrText();
		return text && *text ? text : "the server does not open the file";
	}

	const XrdHttpExtReq &request_;
	std::string opaque_;
	std::unique_ptr<XrdSfsFile> file_;
	bool is_open_ = false;
	bool is_made_ = false;
	std::string path_;
	struct stat opened_ = {};
};

// One place among those for copies under way.
class Place {
public:
	Place(std::atomic<int> &taken, int most) : taken_(taken)
	{
		if (++taken_ > most) {
			--taken_;
			throw Refusal(503, "as many copies as this server does at once are under way");
		}
	}
	Place(const Place &) = delete;
	Place &operator=(const Place &) = delete;
	~Place() { --taken_; }

private:
	std::atomic<int> &taken_;
};

class Handler : public XrdHttpExtHandler {
public:
	Handler(XrdSysError &log, XrdSfsFileSystem &files, const dray::Settings &settings,
		const std::string &authorities)
		: log_(log), files_(files), settings_(settings), authorities_(authorities)
	{
	}

	bool MatchesPath(const char *verb, const char *) override { return std::strcmp(verb, "COPY") == 0; }

	int Init(const char *) override { return 0; }

	int ProcessReq(XrdHttpExtReq &request) override
	{
		try {
			return process(request);
		} catch (const Redirect &redirect) {
			std::string location = "Location: " + dray::one_line(redirect.location);
			return request.SendSimpleResp(307, nullptr, location.c_str(), nullptr, 0);
		} catch (const Refusal &refusal) {
			std::string why = dray::one_line(refusal.what()) + "\n";
			return request.SendSimpleResp(refusal.status, nullptr, nullptr, why.c_str(),
						      static_cast<long long>(why.size()));
		} catch (const std::exception &error) {
			log_.Emsg("dray", "copy", dray::one_line(error.what()).c_str());
			return request.SendSimpleResp(500, nullptr, nullptr, "the copy cannot be begun\n", -1);
		} catch (...) {
			return -1;
		}
	}

private:
	int process(XrdHttpExtReq &request)
	{
		dray::CopyRequest asked = dray::read_request(request.headers);
		Place place(under_way_, settings_.copies_max);
		LocalFile file(files_, request);
		if (asked.is_pull)
			file.open_sink(asked.may_overwrite);
		else
			file.open_source();
		bool is_begun = false;
		dray::Outcome outcome;
		auto send = [&](const std::string &text) {
			if (!is_begun && request.StartChunkedResp(dray::status_begun, nullptr,
								  "Content-Type: text/plain") != 0)
				return false;
			is_begun = true;
			return request.ChunkResp(text.c_str(), static_cast<long long>(text.size())) == 0;
		};
		try {
			outcome = dray::copy(settings_, asked, file.find(), authorities_,
					     socket_of(request), send);
		} catch (...) {
			file.forget(log_);
			if (!is_begun)
				throw;
			outcome.failure = "the copy broke off";
		}
		bool is_good = !outcome.is_client_gone && outcome.failure.empty();
		if (!is_good)
			file.forget(log_);
		tell(request, asked, outcome);
		if (outcome.is_client_gone)
			return -1;
		std::string last = is_good ? "success: Created\n"
					   : "failure: " + dray::one_line(outcome.failure) + "\n";
		if (!send(last))
			return -1;
		return request.ChunkResp(nullptr, 0);
	}

	// One line in the server's log; no address of the other end, which may hold a secret.
	void tell(const XrdHttpExtReq &request, const dray::CopyRequest &asked, const dray::Outcome &outcome)
	{
		std::string line = asked.is_pull ? "pull to " : "push of ";
		line += request.resource + ": ";
		if (outcome.is_client_gone)
			line += "the client is gone";
		else
			line += outcome.failure.empty() ? "done" : outcome.failure;
		log_.Emsg("dray", dray::one_line(line).c_str());
	}

	XrdSysError &log_;
	XrdSfsFileSystem &files_;
	dray::Settings settings_;
	std::string authorities_;
	std::atomic<int> under_way_{0};
};

} // namespace

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdHttpGetExtHandler, dray_http)
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) XrdHttpExtHandler *
XrdHttpGetExtHandler(XrdSysError *log, const char *, const char *parms, XrdOucEnv *env)
{
	try {
		dray::Settings settings;
		if (parms && *parms)
			settings = dray::read_settings(parms);
		void *files = env ? env->GetPtr("XrdSfsFileSystem*") : nullptr;
		if (!files)
			throw std::runtime_error("the server has no file system for it");
		if (access(settings.program.c_str(), X_OK) != 0)
			throw std::runtime_error(settings.program + " cannot be run: " + std::strerror(errno));
		const char *authorities = env->Get("http.cadir");
		return new Handler(*log, *static_cast<XrdSfsFileSystem *>(files), settings,
				   authorities ? authorities : "");
	} catch (const std::exception &error) {
		log->Emsg("dray", "HTTP third-party copies:", error.what());
	} catch (...) {
		log->Emsg("dray", "HTTP third-party copies cannot be set up");
	}
	return nullptr;
}
