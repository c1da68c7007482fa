// Works for ever in templates of the standard library: many small functions, most of them inlined, with debug
// information for all of them.
#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

static std::mt19937_64 generator(1);

static std::vector<std::string> make_words(int count)
{
	std::vector<std::string> words;
	for (int word = 0; word < count; word++)
		words.push_back("key-" + std::to_string(generator() % 5000));
	return words;
}

static size_t count_words(const std::vector<std::string> &words)
{
	std::unordered_map<std::string, int> counts;
	for (const auto &word : words)
		counts[word]++;
	std::map<int, std::string> by_count;
	for (const auto &[word, count] : counts)
		by_count[count] = word;
	return by_count.size();
}

static size_t sort_numbers(int count)
{
	std::vector<double> numbers(count);
	for (auto &number : numbers)
		number = static_cast<double>(generator());
	std::sort(numbers.begin(), numbers.end(), [](double a, double b) { return a > b; });
	return std::lower_bound(numbers.rbegin(), numbers.rend(), 1e18) - numbers.rbegin();
}

static size_t match_words(const std::vector<std::string> &words)
{
	static const std::regex pattern("key-[1-4]*[0-9]?7$");
	return std::count_if(words.begin(), words.end(),
			     [](const std::string &word) { return std::regex_match(word, pattern); });
}

int main()
{
	volatile size_t sink = 0;
	for (;;) {
		auto words = make_words(20000);
		sink = sink + count_words(words) + sort_numbers(50000) + match_words(words);
	}
}
