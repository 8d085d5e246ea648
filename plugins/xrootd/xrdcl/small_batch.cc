// Processes many small files concurrently, so that no file waits for the round trips of other
// files. dray_xrdcl.h describes the functions.

#include "common.hh"

#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClURL.hh>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

using namespace dray;

namespace {

// Maximum number of concurrent chains of calls. The limit leaves threads of the server to other
// clients. The value is estimated, not measured.
const size_t AT_ONCE = 64;

// Returns the state in an answer. The number of the file is 0 if the server has sent none.
dray_xrdcl_state state_of(XrdCl::AnyObject *response)
{
	XrdCl::StatInfo *info = nullptr;
	if (response)
		response->Get(info);
	dray_xrdcl_state state = {};
	if (info)
		fill(*info, &state);
	return state;
}

// A chain of calls for one file. Each call starts when the answer to the previous call arrives. The
// answers arrive on any thread of XrdCl.
class Chain : public XrdCl::ResponseHandler
{
  public:
	virtual ~Chain() = default;
	// Sends the first call of the chain.
	virtual void begin() = 0;
	virtual dray_xrdcl_error *error() = 0;
	void (*ended)(void *) = nullptr;
	void *context = nullptr;

	void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override
	{
		std::unique_ptr<XrdCl::XRootDStatus> owned_status(status);
		std::unique_ptr<XrdCl::AnyObject> owned_response(response);
		step([&] { answered(*owned_status, owned_response.get()); });
	}

  protected:
	// Processes an answer. Sends the next call, or ends the chain.
	virtual void answered(const XrdCl::XRootDStatus &status, XrdCl::AnyObject *response) = 0;

	// Ends the chain. Another thread may destroy this object before the function returns.
	void end() { ended(context); }

	// A call that could not be sent gets no answer, so process its error here.
	void made(const XrdCl::XRootDStatus &status)
	{
		if (!status.IsOK())
			stop(status);
	}

	virtual void stop(const XrdCl::XRootDStatus &status)
	{
		note(status);
		end();
	}

	void note(const XrdCl::XRootDStatus &status)
	{
		// Keep the first error, because later errors may be consequences of it.
		if (error()->kind == -1)
			fail(error(), status);
	}

	template <typename Step> void step(Step call) noexcept
	{
		try {
			call();
		} catch (const std::exception &caught) {
			broke(caught.what());
		} catch (...) {
			broke("the XRootD client threw an unknown exception");
		}
	}

  private:
	void broke(const char *words)
	{
		if (error()->kind == -1)
			fail(error(), DRAY_XRDCL_INTERNAL, words);
		end();
	}
};

class SmallFile final : public Chain
{
  public:
	explicit SmallFile(dray_xrdcl_small *what) : m_what(what) {}

	void begin() override
	{
		step([&] {
			m_step = Step::Open;
			m_file.SetProperty("WriteRecovery", "false");
			auto mode = static_cast<XrdCl::Access::Mode>(m_what->mode);
			// With the flag Force, the server reports an existing file as existing even if another client
			// has it open. Without the flag, the server reports such a file as locked.
			auto flags = XrdCl::OpenFlags::New | XrdCl::OpenFlags::Update | XrdCl::OpenFlags::Force;
			made(m_file.Open(std::string(m_what->url), flags, mode, this));
		});
	}

	dray_xrdcl_error *error() override { return &m_what->error; }

  protected:
	void answered(const XrdCl::XRootDStatus &status, XrdCl::AnyObject *response) override
	{
		// If the server does not support page writes, send the bytes without page checksums. If the
		// server supports no attributes, keep the file without the attribute that the caller
		// requested.
		if (!status.IsOK() && m_step == Step::Write && m_has_pages && is_unknown(status)) {
			m_has_pages = false;
			m_what->is_plain = 1;
			return write();
		}
		if (!status.IsOK() && m_step != Step::Attribute)
			return stop(status);
		if (m_step == Step::LookWhich) {
			m_what->id = state_of(response).id;
			return close();
		}
		switch (m_step) {
		case Step::Open:
			m_what->is_made = 1;
			return write();
		case Step::Write:
			return look(Step::Look);
		case Step::Look:
			return mark(response);
		case Step::Attribute:
			m_step = Step::Sync;
			return made(m_file.Sync(this));
		case Step::Sync:
		case Step::LookWhich:
			return close();
		case Step::Close:
			return end();
		}
	}

	void stop(const XrdCl::XRootDStatus &status) override
	{
		note(status);
		// A file that could not be opened need not be closed.
		if (m_step == Step::Open || m_step == Step::Close)
			end();
		else if (m_what->id == 0 && m_step != Step::LookWhich)
			look(Step::LookWhich);
		else
			close();
	}

  private:
	// LookWhich asks for the identity of a file whose processing failed, so that the caller deletes
	// this file and no other.
	enum class Step { Open, Write, Look, Attribute, Sync, LookWhich, Close };

	static bool is_unknown(const XrdCl::XRootDStatus &status)
	{
		dray_xrdcl_error why = {};
		fail(&why, status);
		return why.kind == DRAY_XRDCL_UNSUPPORTED || why.kind == DRAY_XRDCL_INVALID;
	}

	void write()
	{
		if (m_what->size == 0)
			return look(Step::Look);
		m_step = Step::Write;
		auto size = static_cast<uint32_t>(m_what->size);
		// Use page writes, so that the server checks each page on arrival. Requesting a checksum of
		// each file would be slow, because few servers compute more than a handful of checksums
		// concurrently.
		if (m_has_pages)
			made(m_file.PgWrite(0, size, m_what->bytes, m_sums, this));
		else
			made(m_file.Write(0, size, m_what->bytes, this));
	}

	void look(Step step)
	{
		m_step = step;
		made(m_file.Stat(true, this));
	}

	void mark(XrdCl::AnyObject *response)
	{
		dray_xrdcl_state state = state_of(response);
		m_what->id = state.id;
		if (state.id >> 32 == 0) {
			// Without file numbers, two files with the same name cannot be distinguished.
			fail(error(), DRAY_XRDCL_UNSUPPORTED, "the server reports no id of the file");
			return close();
		}
		m_step = Step::Attribute;
		std::string value = std::string(m_what->value) + " " + std::to_string(state.modified);
		std::vector<XrdCl::xattr_t> given{std::make_tuple(std::string(m_what->attribute), value)};
		made(m_file.SetXAttr(given, this));
	}

	void close()
	{
		m_step = Step::Close;
		made(m_file.Close(this));
	}

	dray_xrdcl_small *m_what;
	XrdCl::File m_file{false};
	std::vector<uint32_t> m_sums;
	bool m_has_pages = true;
	Step m_step = Step::Open;
};

class Syncing final : public Chain
{
  public:
	Syncing(dray_xrdcl_file *file, uint64_t bytes, dray_xrdcl_error *error)
	    : m_file(file), m_bytes(bytes), m_error(error)
	{
	}

	void begin() override
	{
		step([&] { made(m_file->file.Truncate(m_bytes, this)); });
	}

	dray_xrdcl_error *error() override { return m_error; }

  protected:
	void answered(const XrdCl::XRootDStatus &status, XrdCl::AnyObject *) override
	{
		if (!status.IsOK())
			return stop(status);
		if (m_is_begun)
			return end();
		m_is_begun = true;
		made(m_file->file.Sync(this));
	}

  private:
	dray_xrdcl_file *m_file;
	uint64_t m_bytes;
	bool m_is_begun = false;
	dray_xrdcl_error *m_error;
};

class Renaming final : public Chain
{
  public:
	Renaming(const XrdCl::URL &url, dray_xrdcl_renaming *what) : m_server(url, false), m_what(what) {}

	void begin() override
	{
		step([&] {
			if (m_what->id != 0)
				return look(Step::LookFrom, m_what->from);
			look_or_move();
		});
	}

	dray_xrdcl_error *error() override { return &m_what->error; }

  protected:
	void answered(const XrdCl::XRootDStatus &status, XrdCl::AnyObject *response) override
	{
		switch (m_step) {
		case Step::LookFrom:
			if (kind_of(status) == DRAY_XRDCL_NOT_FOUND)
				return look_whether_done(status);
			if (!status.IsOK())
				return stop(status);
			// Compare only the upper half. The lower half is the number of the file system, which
			// changes when the server's host restarts.
			if (state_of(response).id >> 32 != m_what->id >> 32) {
				fail(error(), DRAY_XRDCL_NOT_FOUND, "another file has this name");
				return end();
			}
			return look_or_move();
		case Step::LookTo:
			if (status.IsOK()) {
				if (state_of(response).flags & DRAY_XRDCL_DIRECTORY)
					fail(error(), DRAY_XRDCL_IS_A_DIRECTORY, "a folder has this name");
				else
					fail(error(), DRAY_XRDCL_EXISTS, "another entry has this name");
				return end();
			}
			// Stop if the state is unknown, because an existing entry would be replaced.
			if (kind_of(status) != DRAY_XRDCL_NOT_FOUND)
				return stop(status);
			return move();
		case Step::Move:
			if (status.IsOK())
				return end();
			switch (kind_of(status)) {
			case DRAY_XRDCL_NOT_FOUND:
			case DRAY_XRDCL_UNREACHABLE:
			case DRAY_XRDCL_TIMED_OUT:
				// The client may have repeated the request after a lost answer. The first request
				// may have succeeded, and this error may be the answer to the repetition.
				return look_whether_done(status);
			default:
				return stop(status);
			}
		case Step::LookDone:
			if (!status.IsOK() || state_of(response).id >> 32 != m_what->id >> 32)
				return stop(m_reason);
			return end();
		}
	}

  private:
	enum class Step { LookFrom, LookTo, Move, LookDone };

	static int32_t kind_of(const XrdCl::XRootDStatus &status)
	{
		dray_xrdcl_error why = {};
		return status.IsOK() ? -1 : (fail(&why, status), why.kind);
	}

	void look(Step step, const char *path)
	{
		m_step = step;
		made(m_server.Stat(path, this));
	}

	// Checks if the destination name already belongs to the file to rename.
	void look_whether_done(const XrdCl::XRootDStatus &reason)
	{
		if (m_what->id >> 32 == 0)
			return stop(reason);
		m_reason = reason;
		look(Step::LookDone, m_what->to);
	}

	void look_or_move()
	{
		if (m_what->if_absent)
			look(Step::LookTo, m_what->to);
		else
			move();
	}

	void move()
	{
		m_step = Step::Move;
		made(m_server.Mv(m_what->from, m_what->to, this, CHANGE_SECONDS));
	}

	XrdCl::FileSystem m_server;
	dray_xrdcl_renaming *m_what;
	XrdCl::XRootDStatus m_reason;
	Step m_step = Step::Move;
};

// Waits for all chains, and limits the number of concurrent chains.
class Count
{
  public:
	void enter()
	{
		std::unique_lock<std::mutex> lock(m_mutex);
		m_changed.wait(lock, [&] { return m_open < AT_ONCE; });
		++m_open;
	}

	static void leave(void *context)
	{
		auto *count = static_cast<Count *>(context);
		std::lock_guard<std::mutex> lock(count->m_mutex);
		--count->m_open;
		count->m_changed.notify_all();
	}

	void wait()
	{
		std::unique_lock<std::mutex> lock(m_mutex);
		m_changed.wait(lock, [&] { return m_open == 0; });
	}

  private:
	std::mutex m_mutex;
	std::condition_variable m_changed;
	size_t m_open = 0;
};

void run(std::vector<std::unique_ptr<Chain>> &chains)
{
	Count count;
	for (auto &chain : chains) {
		chain->ended = Count::leave;
		chain->context = &count;
		chain->error()->kind = -1;
		count.enter();
		chain->begin();
	}
	// Wait here, because pending answers refer to these objects.
	count.wait();
}

} // namespace

extern "C" {

DRAY_EXPORT int32_t dray_xrdcl_write_small(dray_xrdcl_small *files, uint64_t count, dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		std::vector<std::unique_ptr<Chain>> chains;
		for (uint64_t at = 0; at < count; ++at)
			chains.push_back(std::make_unique<SmallFile>(&files[at]));
		run(chains);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_sync_each(dray_xrdcl_file *const *files, const uint64_t *bytes,
                                         dray_xrdcl_error *errors, uint64_t count,
                                         dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		std::vector<std::unique_ptr<Chain>> chains;
		for (uint64_t at = 0; at < count; ++at)
			chains.push_back(std::make_unique<Syncing>(files[at], bytes[at], &errors[at]));
		run(chains);
		return 0;
	});
}

DRAY_EXPORT int32_t dray_xrdcl_move_each(const char *url, dray_xrdcl_renaming *each, uint64_t count,
                                         dray_xrdcl_error *error)
{
	return guarded(error, [&]() -> int32_t {
		XrdCl::URL server(url);
		std::vector<std::unique_ptr<Chain>> chains;
		for (uint64_t at = 0; at < count; ++at)
			chains.push_back(std::make_unique<Renaming>(server, &each[at]));
		run(chains);
		return 0;
	});
}

} // extern "C"
