// Reads pieces of a file of an XRootD server, with one message per piece or per several pieces:
//   vectors URL WAY PIECE_BYTES STEP_BYTES PIECES AT_ONCE REQUESTS
// WAY is "reads" (a message for each piece) or "vectors" (a message for all pieces of a request).
// A request has PIECES pieces. STEP_BYTES is the distance between the starts of two pieces. AT_ONCE
// of all REQUESTS requests run concurrently. Prints seconds, CPU seconds, and the sum of all bytes.

#include <XrdCl/XrdClFile.hh>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

// Waits for the answers of one request.
class Answers : public XrdCl::ResponseHandler
{
  public:
	void expect(int answers) { m_missing = answers; }

	void HandleResponse(XrdCl::XRootDStatus *status, XrdCl::AnyObject *response) override
	{
		std::unique_ptr<XrdCl::XRootDStatus> owned_status(status);
		std::unique_ptr<XrdCl::AnyObject> owned_response(response);
		std::lock_guard<std::mutex> hold(m_lock);
		if (!status->IsOK()) {
			std::cerr << status->ToStr() << std::endl;
			std::_Exit(1);
		}
		if (--m_missing == 0)
			m_all.notify_one();
	}

	void wait()
	{
		std::unique_lock<std::mutex> hold(m_lock);
		m_all.wait(hold, [&] { return m_missing == 0; });
	}

  private:
	std::mutex m_lock;
	std::condition_variable m_all;
	int m_missing = 0;
};

double used()
{
	struct rusage all = {};
	getrusage(RUSAGE_SELF, &all);
	auto seconds = [](const timeval &time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; };
	return seconds(all.ru_utime) + seconds(all.ru_stime);
}

void made(const XrdCl::XRootDStatus &status)
{
	if (!status.IsOK()) {
		std::cerr << status.ToStr() << std::endl;
		std::_Exit(1);
	}
}

} // namespace

int main(int count, char **words)
{
	if (count != 8) {
		std::cerr << "vectors URL WAY PIECE_BYTES STEP_BYTES PIECES AT_ONCE REQUESTS" << std::endl;
		return 2;
	}
	const bool is_vector = std::string(words[2]) == "vectors";
	const auto piece = uint32_t(std::strtoul(words[3], nullptr, 10));
	const uint64_t step = std::strtoull(words[4], nullptr, 10);
	const int pieces = std::atoi(words[5]), at_once = std::atoi(words[6]), requests = std::atoi(words[7]);
	XrdCl::File file(false);
	made(file.Open(words[1], XrdCl::OpenFlags::Read));
	std::atomic<int> next{0};
	std::atomic<uint64_t> sum{0};
	auto ask = [&](std::vector<char> &buffer) {
		for (int request = next++; request < requests; request = next++) {
			const uint64_t begin = uint64_t(request) * uint64_t(pieces) * step;
			Answers answers;
			answers.expect(is_vector ? 1 : pieces);
			XrdCl::ChunkList chunks;
			for (int at = 0; at < pieces; ++at) {
				char *to = buffer.data() + size_t(at) * piece;
				if (is_vector)
					chunks.emplace_back(begin + uint64_t(at) * step, piece, to);
				else
					made(file.Read(begin + uint64_t(at) * step, piece, to, &answers));
			}
			if (is_vector)
				made(file.VectorRead(chunks, nullptr, &answers));
			answers.wait();
			uint64_t found = 0;
			for (size_t at = 0; at < buffer.size(); at += 64)
				found += uint8_t(buffer[at]);
			sum += found;
		}
	};
	// Touch the buffers now, as dray touches its pool.
	std::vector<std::vector<char>> buffers(size_t(at_once), std::vector<char>(size_t(pieces) * piece, 1));
	const double cpu = used();
	const auto began = std::chrono::steady_clock::now();
	std::vector<std::thread> askers;
	for (auto &buffer : buffers)
		askers.emplace_back(ask, std::ref(buffer));
	for (auto &asker : askers)
		asker.join();
	const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
	std::cout << took.count() << " " << used() - cpu << " " << sum << std::endl;
	[[maybe_unused]] auto closed = file.Close();
	return 0;
}
