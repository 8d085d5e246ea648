// Finds the servers of a cluster that have a file, and asks each server for its state. dray_xrdcl.h
// describes the functions.

#include "common.hh"

#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClURL.hh>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using namespace dray;

namespace {

// Counts the answers that have not arrived.
class Missing
{
  public:
	explicit Missing(uint64_t count) : m_count(count) {}

	void came()
	{
		// Notify while the lock is held. The waiting thread may destroy this object immediately
		// after the lock is released.
		std::lock_guard<std::mutex> hold(m_lock);
		if (--m_count == 0)
			m_none.notify_all();
	}

	void wait()
	{
		std::unique_lock<std::mutex> hold(m_lock);
		m_none.wait(hold, [&] { return m_count == 0; });
	}

  private:
	std::mutex m_lock;
	std::condition_variable m_none;
	uint64_t m_count;
};

class Look final : public XrdCl::ResponseHandler
{
  public:
	Look(dray_xrdcl_looked *what, Missing &missing)
	    : m_what(what), m_missing(missing), m_server(XrdCl::URL(what->url), false)
	{
		m_what->state = {};
		m_what->error.kind = -1;
	}

	void begin(uint16_t seconds)
	{
		const auto made = guarded(&m_what->error, [&]() -> int32_t {
			return done(&m_what->error, m_server.Stat(m_what->path, this, seconds));
		});
		// A call that could not be sent gets no answer, so count it here.
		if (made != 0)
			m_missing.came();
	}

	void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override
	{
		std::unique_ptr<XrdCl::XRootDStatus> owned_status(status);
		std::unique_ptr<XrdCl::AnyObject> owned_response(response);
		guarded(&m_what->error, [&]() -> int32_t {
			if (!status->IsOK())
				return fail(&m_what->error, *status);
			XrdCl::StatInfo *info = nullptr;
			if (response)
				response->Get(info);
			if (!info)
				return missing(&m_what->error);
			fill(*info, &m_what->state);
			return 0;
		});
		m_missing.came();
	}

  private:
	dray_xrdcl_looked *m_what;
	Missing &m_missing;
	XrdCl::FileSystem m_server;
};

} // namespace

extern "C" {

DRAY_EXPORT int32_t dray_xrdcl_locate(const char *url, const char *path, uint32_t seconds, char *answer,
                                      uint32_t answer_bytes, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::FileSystem server{XrdCl::URL(url), false};
		Answer<XrdCl::LocationInfo> found;
		// Request host names if the manager knows them, because the certificate of a server
		// contains its name.
		auto status =
			server.DeepLocate(path, XrdCl::OpenFlags::PrefName, found.info, limit_of(seconds));
		if (!status.IsOK())
			return fail(error, status);
		if (!found.info)
			return missing(error);
		std::string text;
		for (auto at = found.info->Begin(); at != found.info->End(); ++at) {
			// Skip a server that has the file only on tape, because it would have to fetch the file
			// first.
			if (at->GetType() != XrdCl::LocationInfo::ServerOnline)
				continue;
			const auto line = at->GetAddress() + "\n";
			if (text.size() + line.size() < answer_bytes)
				text += line;
		}
		return answered(text, answer, answer_bytes, error);
	});
}

DRAY_EXPORT int32_t dray_xrdcl_look_each(dray_xrdcl_looked *each, uint64_t count, uint32_t seconds,
                                         dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		Missing missing(count);
		std::vector<std::unique_ptr<Look>> looks;
		looks.reserve(count);
		// Create all objects before the first request is sent. No exception may occur while an
		// answer is pending.
		for (uint64_t at = 0; at < count; ++at)
			looks.push_back(std::make_unique<Look>(&each[at], missing));
		for (auto &look : looks)
			look->begin(limit_of(seconds));
		missing.wait();
		return 0;
	});
}

} // extern "C"
