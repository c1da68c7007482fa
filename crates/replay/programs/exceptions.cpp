// C++ that throws through several frames, with destructors on the way, and catches: again and again.
#include <stdexcept>
#include <string>
#include <vector>

static volatile unsigned long sink;

struct Guard {
    std::string name;
    explicit Guard(int depth) : name("a guard with a name of its own, number " + std::to_string(depth)) {}
    ~Guard() { sink = sink + name.size(); }
};

struct Shape {
    virtual ~Shape() = default;
    virtual int cut(int depth) = 0;
};

struct Round : Shape {
    int cut(int depth) override;
};

struct Square : Shape {
    int cut(int depth) override;
};

int Round::cut(int depth) {
    Guard guard(depth);
    Square next;
    Shape &shape = next;
    return shape.cut(depth - 1) + static_cast<int>(guard.name.size());
}

int Square::cut(int depth) {
    Guard guard(depth);
    if (depth <= 0)
        throw std::runtime_error("nothing is left of " + guard.name);
    std::vector<int> pieces(depth + 3, depth);
    Round next;
    Shape &shape = next;
    return shape.cut(depth - 1) + pieces[depth] + static_cast<int>(guard.name.size());
}

int main() {
    for (;;) {
        try {
            Square square;
            sink = sink + square.cut(9);
        } catch (const std::exception &error) {
            sink = sink + std::string(error.what()).size();
        }
    }
}
