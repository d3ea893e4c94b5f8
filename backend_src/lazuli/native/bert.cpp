// A BERT encoder over packed tokens in one call. Weights are packed once, and what follows a product is done while its
// results are in registers. What it computes is spelt out in torch in `lazuli/models/bert.py`; structures are filled by
// `bert.py` in this folder.
//
// T tokens, D hidden size, B sequences, K inputs of a product.
#include <algorithm>
#include <cmath>

#include "crew.h"
#include "memory.h"
#include "product.h"

namespace {

struct Linear {
    const float *weight, *bias;  // [N, K], copied to panels; [N]
};

struct Norm {
    const float *scale, *shift;
};

struct Layer {
    Linear qkv, project;
    Norm attention_norm;
    Linear up, down;
    Norm mlp_norm;
};

struct Embedding {
    const float *tokens, *positions;
    long segment_length;  // rows of positions of each segment, if ids have a bit that tells it; else 0
    long segment_bit;
    Norm norm;
};

struct Sizes {
    long hidden, inner, head, layers;
    float eps;
};

struct Batch {
    const int *ids, *positions, *starts;  // [T], [T], [B + 1]
    long sequences;
};

const long CHUNK = 8 * ROWS;  // tokens whose inputs stay in a core's own cache while panel after panel passes
const long NORM_ROWS = 8;     // of a task

class Bert {
  public:
    Bert(const Sizes &sizes, const Embedding &embedding, const Layer *layers, int threads)
        : sizes(sizes), embedding(embedding), layers(layers, layers + sizes.layers), crew(threads) {
        const long d = sizes.hidden, inner = sizes.inner;
        weights = allocate(sizes.layers * (4 * d * d + 2 * d * inner));
        float *place = weights.get();
        for (Layer &layer : this->layers) {
            place = pack(layer.qkv.weight, 3 * d, d, place);
            place = pack(layer.project.weight, d, d, place);
            place = pack(layer.up.weight, inner, d, place);
            place = pack(layer.down.weight, d, inner, place);
        }
    }

    // Writes [T, D] hidden states.
    void run(const Batch &batch, float *hidden) {
        std::lock_guard<std::mutex> alone(turn);
        const long tokens = batch.starts[batch.sequences], d = sizes.hidden;
        make_room(tokens);
        std::vector<Block> blocks;
        for (long i = 0; i < batch.sequences; i++)
            for (long at = batch.starts[i]; at < batch.starts[i + 1]; at += COLUMNS)
                blocks.push_back({batch.starts[i], batch.starts[i + 1], at});
        std::vector<Stage> work;
        add_rows(work, tokens, [this, &batch, hidden](long row) {
            embed(batch.ids[row], batch.positions[row], hidden + row * sizes.hidden);
        });
        for (const Layer &layer : layers) {
            add_product(work, tokens, {hidden, d, d}, layer.qkv, 3 * d, [this](long row, long column, Vector value) {
                store(qkv.get() + row * qkv_stride() + column, value);
            });
            add_attention(work, blocks);
            add_to_stream(work, tokens, hidden, {attended.get(), d, d}, layer.project, layer.attention_norm);
            const Input states = {inner.get(), inner_stride(), sizes.inner};
            auto keep = [this](long row, long column, Vector value) {
                store(inner.get() + row * inner_stride() + column, gelu(value));
            };
            add_product(work, tokens, {hidden, d, d}, layer.up, sizes.inner, keep);
            add_to_stream(work, tokens, hidden, states, layer.down, layer.mlp_norm);
        }
        crew.run(work);
    }

  private:
    struct Block {
        long begin, end, first;  // of a sequence, and the first of at most COLUMNS queries
    };

    struct Input {
        const float *rows;
        long stride, size;
    };

    Sizes sizes;
    Embedding embedding;
    std::vector<Layer> layers;
    Crew crew;
    std::mutex turn;
    long room = 0;
    Floats weights, qkv, attended, inner;

    // Rows that are a multiple of 512 bytes apart would share few places of a cache.
    long qkv_stride() const { return 3 * sizes.hidden + WIDTH; }
    long inner_stride() const { return sizes.inner + WIDTH; }

    void make_room(long tokens) {
        if (tokens <= room) return;
        qkv = allocate(tokens * qkv_stride());
        attended = allocate(tokens * sizes.hidden);
        inner = allocate(tokens * inner_stride());
        room = tokens;
    }

    template <class Each>
    void add_rows(std::vector<Stage> &work, long tokens, Each each) {
        work.push_back({(tokens + NORM_ROWS - 1) / NORM_ROWS, [=](long task) {
                            const long end = std::min(tokens, (task + 1) * NORM_ROWS);
                            for (long row = task * NORM_ROWS; row < end; row++) each(row);
                        }});
    }

    // A task is a chunk of tokens and a group of panels, which stays in a core's own cache for chunk after chunk.
    template <class Keep>
    void add_product(std::vector<Stage> &work, long tokens, Input input, Linear linear, long columns, Keep keep) {
        const long chunks = (tokens + CHUNK - 1) / CHUNK, panels = columns / COLUMNS;
        // A thread fetches its own panels ahead, so it gets neighbours; few tokens wait for nothing but that.
        const long share = std::max(1L, panels / long((tokens > 4 * ROWS ? 2 : 1) * crew.size()));
        const long groups = (panels + share - 1) / share;
        work.push_back({chunks * groups, [=](long task) {
            const long chunk = task % chunks, first = tokens * chunk / chunks, last = tokens * (chunk + 1) / chunks;
            const long begin = task / chunks * share, end = std::min(panels, begin + share);
            for (long panel = begin; panel < end; panel++) {
                const float *weight = linear.weight + panel * COLUMNS * input.size;
                const float *bias = linear.bias + panel * COLUMNS;
                const float *behind = panel + 1 < end ? weight + COLUMNS * input.size : nullptr;
                const Left rows = {input.rows + first * input.stride, input.stride, 1};
                product(last - first, rows, {weight, COLUMNS}, input.size, behind,
                        [&](long row, int part, Vector value) {
                            const long column = part * WIDTH;
                            keep(first + row, panel * COLUMNS + column, value + load(bias + column));
                        });
            }
        }});
    }

    void add_to_stream(std::vector<Stage> &work, long tokens, float *hidden, Input input, Linear linear, Norm norm) {
        const long d = sizes.hidden;
        add_product(work, tokens, input, linear, d, [hidden, d](long row, long column, Vector value) {
            float *place = hidden + row * d + column;
            store(place, load(place) + value);
        });
        add_rows(work, tokens, [this, hidden, d, norm](long row) { normalize(hidden + row * d, norm); });
    }

    void add_attention(std::vector<Stage> &work, const std::vector<Block> &blocks) {
        const long heads = sizes.hidden / sizes.head;
        work.push_back({heads * long(blocks.size()), [this, &blocks, heads](long task) {
                            attend(blocks[task / heads], task % heads);
                        }});
    }

    void embed(long id, long position, float *row) {
        const long d = sizes.hidden;
        if (embedding.segment_length) {
            position += (id >> embedding.segment_bit) * embedding.segment_length;
            id &= (1L << embedding.segment_bit) - 1;
        }
        const float *token = embedding.tokens + id * d, *place = embedding.positions + position * d;
        for (long i = 0; i < d; i += WIDTH) store(row + i, load(token + i) + load(place + i));
        normalize(row, embedding.norm);
    }

    void normalize(float *row, const Norm &norm) {
        const long d = sizes.hidden;
        Vector total{}, squares{};
        for (long i = 0; i < d; i += WIDTH) total += load(row + i);
        const float mean = sum(total) / d;
        for (long i = 0; i < d; i += WIDTH) {
            const Vector apart = load(row + i) - mean;
            squares += apart * apart;
        }
        const float scale = 1 / std::sqrt(sum(squares) / d + sizes.eps);
        for (long i = 0; i < d; i += WIDTH)
            store(row + i, (load(row + i) - mean) * scale * load(norm.scale + i) + load(norm.shift + i));
    }

    // One head of a block. Scores are [keys, COLUMNS], a column for each query, so that the softmax needs no sums
    // within a vector.
    void attend(const Block &block, long head) {
        const long size = sizes.head, d = sizes.hidden, stride = qkv_stride(), keys = block.end - block.begin;
        const long queries = std::min<long>(COLUMNS, block.end - block.first);
        const float *query = qkv.get() + block.first * stride + head * size;
        const float *key = qkv.get() + block.begin * stride + d + head * size, *value = key + d;
        thread_local std::vector<float> scratch;
        if (long(scratch.size()) < (size + keys) * COLUMNS) scratch.resize((size + keys) * COLUMNS);
        float *columns = scratch.data(), *scores = columns + size * COLUMNS;
        const float scale = 1 / std::sqrt(float(size));
        std::fill(columns, scores, 0.0f);
        for (long q = 0; q < queries; q++, query += stride)
            for (long i = 0; i < size; i++) columns[i * COLUMNS + q] = scale * query[i];
        Vector most[PARTS], total[PARTS] = {};
        for (auto &part : most) part = splat(-INFINITY);
        product(keys, {key, stride, 1}, {columns, COLUMNS}, size, nullptr, [&](long row, int part, Vector score) {
            most[part] = largest(most[part], score);
            store(scores + row * COLUMNS + part * WIDTH, score);
        });
        for (long row = 0; row < keys; row++)
            for (int part = 0; part < PARTS; part++) {
                float *place = scores + row * COLUMNS + part * WIDTH;
                const Vector weight = exponential(load(place) - most[part]);
                total[part] += weight;
                store(place, weight);
            }
        float inverse[COLUMNS];
        for (int part = 0; part < PARTS; part++) store(inverse + part * WIDTH, 1 / total[part]);
        float *output = attended.get() + block.first * d + head * size;
        for (long column = 0; column < size; column += COLUMNS)
            product(queries, {scores, 1, COLUMNS}, {value + column, stride}, keys, nullptr,
                    [&](long row, int part, Vector mean) {
                        store(output + row * d + column + part * WIDTH, mean * inverse[row]);
                    });
    }
};

}  // namespace

extern "C" {

// Null if there is no memory. Tables, norms and biases must stay where they are; weights are copied.
Bert *bert_new(const Sizes *sizes, const Embedding *embedding, const Layer *layers, int threads) {
    try {
        return new Bert(*sizes, *embedding, layers, threads);
    } catch (const std::exception &) {
        return nullptr;
    }
}

// False if there is no memory.
bool bert_run(Bert *bert, const Batch *batch, float *hidden) {
    try {
        bert->run(*batch, hidden);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

void bert_free(Bert *bert) { delete bert; }
}
