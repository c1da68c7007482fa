// callers FRAMES SECONDS: sorts, allocates and formats at the end of a stack FRAMES deep; built without frame pointers.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

static unsigned state = 1;

static unsigned random_number()
{
	return state = state * 1664525u + 1013904223u;
}

[[gnu::noinline]] static std::size_t churn()
{
	std::vector<std::string> words;
	std::map<std::string, unsigned> counts;

	for (int i = 0; i < 300; i++)
		words.push_back(std::to_string(random_number()));
	std::sort(words.begin(), words.end());
	for (const auto &word : words)
		counts[word.substr(0, 3)]++;
	if (counts.size() % 7 == 0)
		throw std::runtime_error("now and then");
	return counts.size();
}

[[gnu::noinline]] static std::size_t descend(int frames, std::size_t a, std::size_t b)
{
	if (frames > 0)
		return descend(frames - 1, a + b, a ^ b) + a * 3 + b;
	try {
		return churn();
	} catch (const std::runtime_error &error) {
		return std::string(error.what()).size();
	}
}

int main(int argc, char **argv)
{
	const std::time_t end = std::time(nullptr) + (argc > 2 ? std::atoi(argv[2]) : 10);
	std::size_t sum = 0;

	while (std::time(nullptr) < end)
		sum += descend(argc > 1 ? std::atoi(argv[1]) : 20, sum, 2);
	return sum == 42;
}
