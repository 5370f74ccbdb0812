"""Models with named dimensions, all by one rule: what the catalogues of torchvision, timm, transformers and torch_geometric list,
with random weights, few layers and no download. For bench/named_dims.py; a name is GROUP/SOURCE/MODEL.

  vision     images of torchvision, of timm (a file of its models, of which the smallest of four drawn stands), of transformers
  audio      transformers whose main input is a waveform or frames of features
  detection  transformers' detectors, torchvision's with their selection of boxes
  encoders   transformers whose main input is tokens, with a mask; those with a decoder have its tokens, too
             (of transformers the types that the library has a model of for a task of the group)
  graphs     two layers of a class of torch_geometric's convolutions: features of nodes, and pairs of nodes

Of a run of layers of one class whose parameters have the same shapes two stay. Dimensions are those that the original module takes
at several values; the least height, and the number of which heights must be multiples, are the first of a list with which it runs.
"""
import copy
import dataclasses
import inspect
import math
import random

import zoo

GROUPS = ("vision", "encoders", "audio", "graphs", "detection")
FEW = 2  # layers of a kind
MOST_PARAMETERS = 40e6
SIZES = [(least, step) for step in (1, 32, 14) for least in (32, 64, 128, 224)]  # of heights and widths
LISTS = ("depths", "num_blocks", "depth", "layers")
LENGTHS = {"input_ids": 512, "decoder_input_ids": 512, "input_features": 512, "input_values": 16000}
FIRST = {"input_values": 400}  # what the first windows of a waveform take; the double where it is not enough
# What torch_geometric's layers are made with, by the names of their arguments.
GRAPH_ARGUMENTS = {"in_channels": 16, "out_channels": 16, "channels": 16, "heads": 2, "K": 2, "num_layers": 2, "dim": 1, "num_relations": 3,
                   "num_heads": 2, "kernel_size": 3, "eps": 0.1, "alpha": 0.2, "hidden_channels": 16, "feature_channels": 16, "layer": 1}  # fmt: skip


@dataclasses.dataclass
class Made:
    """A model, its inputs and ranges of their dimensions: (least, most, of which all are multiples)."""

    module: object
    names: list
    axes: list  # of each input: names and numbers
    kinds: list  # of each input: normal, ids:N, mask, or index:NAME
    ranges: dict


def catalogue():
    """The names of all models, a list a group."""
    import timm.models._registry as registry
    import torch_geometric.nn.conv as conv
    import torchvision
    from transformers.models.auto import modeling_auto as auto

    detection = [f"detection/torchvision/{n}" for n in torchvision.models.list_models(torchvision.models.detection)]
    detection += [f"detection/transformers/{n}" for n in auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES]
    vision = [f"vision/torchvision/{n}" for n in torchvision.models.list_models() if not any(s in n for s in zoo.NO_IMAGE)]
    vision += [f"vision/timm/{n}" for n in registry._module_to_models]

    def types(group, *heads):
        known = {n for head in heads for n in getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES")}
        return [f"{group}/transformers/{n}" for n in known if n in auto.MODEL_MAPPING_NAMES]

    return {
        "vision": vision + types("vision", "IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION"),
        "encoders": types("encoders", "MASKED_LM", "TEXT_ENCODING", "SEQ_TO_SEQ_CAUSAL_LM", "TOKEN_CLASSIFICATION"),
        "audio": types("audio", "AUDIO_CLASSIFICATION", "CTC", "SPEECH_SEQ_2_SEQ", "TEXT_TO_SPECTROGRAM"),
        "graphs": [f"graphs/torch_geometric/{n}" for n in conv.__all__],
        "detection": detection,
    }


def draw(seed, groups):
    """Names without repetition, of each group in turn."""
    rng, lists = random.Random(seed), {g: sorted(set(n)) for g, n in catalogue().items() if g in groups}
    for names in lists.values():
        rng.shuffle(names)
    while any(lists.values()):
        for names in lists.values():
            if names:
                yield names.pop()


# --- fewer layers ---


def shorten(module, torch):
    """Leaves two of each run of like layers."""
    for parent in list(module.modules()):
        if not isinstance(parent, (torch.nn.Sequential, torch.nn.ModuleList)):
            continue
        kept, last, n = [], None, 0
        for child in parent:
            kind = (type(child), tuple(tuple(p.shape) for p in child.parameters()))
            n = n + 1 if kind == last and kind[1] else 1
            last = kind
            if n <= FEW:
                kept.append(child)
        if len(kept) < len(parent):
            parent._modules = {str(i): c for i, c in enumerate(kept)}
    return module


def small_config(config):
    """Two layers of a kind, a vocabulary of 1,000, and no caches; also in the configuration that one has in it."""
    zoo.small_config(config)
    for name in (*zoo.LAYERS, "decoder_num_layers", "num_decoder_layers", "num_encoder_layers", "num_hidden_groups"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(getattr(config, name), FEW))
    for name in LISTS:
        if isinstance(getattr(config, name, None), (list, tuple)) and all(isinstance(d, int) for d in getattr(config, name)):
            setattr(config, name, type(getattr(config, name))(min(d, FEW) for d in getattr(config, name)))
    if isinstance(getattr(config, "vocab_size", None), int):
        config.vocab_size = min(config.vocab_size, 1000)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            if isinstance(getattr(config, name, None), int) and getattr(config, name) >= config.vocab_size:
                setattr(config, name, 0)
    for name in ("use_pretrained_backbone", "use_cache"):
        if hasattr(config, name):
            setattr(config, name, False)
    if getattr(config, "layer_types", None) and hasattr(config, "num_hidden_layers"):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    inner = getattr(config, "backbone_config", None)
    if inner is not None and not isinstance(inner, dict):
        small_config(inner)
    return config


# --- models of a source ---


def from_timm(which, seed):
    import timm
    import timm.models._registry as registry
    import torch

    rng, sizes = random.Random(seed), []
    names = sorted(n for n in registry._module_to_models[which])
    for name in rng.sample(names, min(4, len(names))):
        with torch.device("meta"):
            sizes.append((sum(p.numel() for p in timm.create_model(name, pretrained=False).parameters()), name))
    n, name = min(sizes)
    if n > 3 * MOST_PARAMETERS:
        raise NotImplementedError("too many parameters")
    tried = []
    for more in ({"dynamic_img_size": True}, {"strict_img_size": False}, {}):
        try:
            return timm.create_model(name, pretrained=False, exportable=True, **more)
        except TypeError as e:
            tried.append(e)
    raise tried[-1]


def from_transformers(kind, detects):
    import transformers

    config = small_config(transformers.AutoConfig.for_model(kind))
    if getattr(config, "sub_configs", None) and not detects:
        raise NotImplementedError("several models in one")
    made = (transformers.AutoModelForObjectDetection if detects else transformers.AutoModel).from_config(config)
    return made, config


def inputs_of(group, model, config):
    """Names, axes, kinds of the inputs of a model of transformers, and ranges."""
    main, vocabulary = model.main_input_name, getattr(config, "vocab_size", 1000)
    wanted = {"vision": ("pixel_values",), "detection": ("pixel_values",), "encoders": ("input_ids",), "audio": ("input_values", "input_features")}
    if main not in wanted[group] or not isinstance(vocabulary, int):
        raise NotImplementedError(f"main input is {main}")
    takes = inspect.signature(model.forward).parameters
    ranges = {"batch": (1, 8, 1)}
    if main == "pixel_values":
        return [main], [("batch", zoo.first_int(getattr(config, "num_channels", None), 3), "height", "width")], ["normal"], ranges
    dim = {"input_ids": "tokens", "input_values": "samples", "input_features": "frames"}[main]
    most = LENGTHS[main]
    limit = getattr(config, "max_position_embeddings", None)
    ranges[dim] = (FIRST.get(main, 1), min(most, limit) if isinstance(limit, int) and main == "input_ids" else most, 1)
    if main == "input_features":
        width = zoo.first_int(getattr(config, "num_mel_bins", None), 80)
        width = zoo.first_int(getattr(config, "feature_projection_input_dim", getattr(config, "input_feat_per_channel", width)), width)
        names, axes, kinds = [main], [("batch", dim, width)], ["normal"]
    else:
        names, axes, kinds = [main], [("batch", dim)], [f"ids:{vocabulary}" if main == "input_ids" else "normal"]
    if main == "input_ids" and "attention_mask" in takes:
        names, axes, kinds = names + ["attention_mask"], axes + [("batch", dim)], kinds + ["mask"]
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in takes:
        ranges["target"] = (1, ranges[dim][1] if dim == "tokens" else 128, 1)
        names, axes, kinds = names + ["decoder_input_ids"], axes + [("batch", "target")], kinds + [f"ids:{vocabulary}"]
    return names, axes, kinds, ranges


def from_geometric(which, torch):
    """Two layers of a class, with what its arguments without a default are called."""
    import torch_geometric.nn.conv as conv

    made = getattr(conv, which)

    def layer():
        arguments = {}
        for name, p in inspect.signature(made.__init__).parameters.items():
            if name == "self" or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
                continue
            if name == "nn":
                double = 2 if which.startswith("Edge") else 1
                arguments[name] = torch.nn.Sequential(torch.nn.Linear(16 * double, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
            elif p.default is inspect.Parameter.empty:
                if name not in GRAPH_ARGUMENTS:
                    raise NotImplementedError(f"argument {name}")
                arguments[name] = GRAPH_ARGUMENTS[name]
        return made(**arguments)

    takes = [n for n, p in inspect.signature(made.forward).parameters.items() if n != "self" and p.default is inspect.Parameter.empty]
    if takes != ["x", "edge_index"]:
        raise NotImplementedError(f"forward takes {takes}")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = layer(), layer()

        def forward(self, x, edge_index):
            return self.second(torch.relu(self.first(x, edge_index)), edge_index)

    return Net(), ["x", "edge_index"], [("nodes", 16), (2, "edges")], ["normal", "index:nodes"], {"nodes": (1, 512, 1), "edges": (1, 1024, 1)}


def from_torchvision(which, group, torch):
    import torchvision

    extra = {"weights": None}
    if group == "detection" or which in torchvision.models.list_models(torchvision.models.segmentation):
        extra["weights_backbone"] = None
    inner = torchvision.models.get_model(which, **extra)
    if group != "detection":
        return inner

    class Detector(torch.nn.Module):
        """A model of one image, given as a list."""

        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner([x[0]])

    return Detector()


# --- any model ---


def make(name, seed, torch):
    """A model as a Made whose forward takes tensors and gives a tuple of them; NotImplementedError where the rule leaves it out."""
    group, source, which = name.split("/")
    names, axes, kinds = ["x"], [("batch", 3, "height", "width")], ["normal"]
    ranges, by_name = {"batch": (1, 8, 1)}, False
    torch.manual_seed(seed)
    try:
        if source == "transformers":
            inner, config = from_transformers(which, group == "detection")
            names, axes, kinds, ranges = inputs_of(group, inner, config)
            by_name = True
        elif source == "torch_geometric":
            inner, names, axes, kinds, ranges = from_geometric(which, torch)
        elif source == "timm":
            inner = from_timm(which, seed)
        else:
            inner = from_torchvision(which, group, torch)
            if group == "detection":
                axes, ranges = [(1, 3, "height", "width")], {}
        inner = zoo.vary(inner.eval(), torch)
    except (*zoo.FAILURES, OSError, IndexError) as e:
        raise NotImplementedError(f"{type(e).__name__}: {str(e)[:200]}") from e

    class Flat(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *xs):
            if by_name:
                return tuple(zoo.tensors(dict(self.inner(**dict(zip(names, xs)))), torch))
            return tuple(zoo.tensors(self.inner(*xs), torch))

    def made(inner, ranges):
        return Made(Flat(inner), names, axes, kinds, ranges)

    size = getattr(inner, "default_cfg", {}).get("input_size", (3, 224, 224))[-1] if source == "timm" else 299 if "inception_v3" in which else 224
    if source == "transformers" and "height" in axes[0]:
        size = zoo.first_int(getattr(config, "image_size", None), 224)
    for model in (lambda: shorten(copy.deepcopy(inner), torch), lambda: inner):
        whole = fit(made(model(), dict(ranges)), size, torch)
        if whole and sum(p.numel() for p in whole.module.parameters()) <= MOST_PARAMETERS:
            return whole
    raise NotImplementedError("runs at no size, or has too many parameters")


def fit(made, size, torch):
    """Gives heights and widths the first range with which the module runs, or numbers; None where it does not run."""
    if not any("height" in a for a in made.axes):
        least = {d: r[0] for d, r in made.ranges.items()}
        other = {d: min(r[1], max(3, 2 * r[0]) + 4 * i) for i, (d, r) in enumerate(made.ranges.items())}
        for d in made.ranges:
            if not runs(made, {**other, d: least[d]}, torch):
                least[d] *= 2
                made.ranges[d] = (least[d], *made.ranges[d][1:])
        return made if runs(made, other, torch) and runs(made, least, torch) else None
    batch = {"batch": 3} if "batch" in made.ranges else {}
    for least, step in SIZES:
        least = math.ceil(least / step) * step
        points = [(least, least), (least + 5 * step, 2 * least + 3 * step)]
        if all(runs(made, {**batch, "height": h, "width": w}, torch) for h, w in points):
            made.ranges |= {"height": (least, 1024 // step * step, step), "width": (least, 1024 // step * step, step)}
            return made
    fixed = without_sizes(made, size)
    return fixed if runs(fixed, batch, torch) else None


def without_sizes(made, size):
    """The same model, with heights and widths of one number."""
    axes = [tuple(size if a in ("height", "width") else a for a in one) for one in made.axes]
    return Made(made.module, made.names, axes, made.kinds, {k: v for k, v in made.ranges.items() if k not in ("height", "width")})


def runs(made, dims, torch):
    try:
        with torch.no_grad():
            return all(t.isfinite().all() for t in made.module(*give(made, dims, 0, torch)))
    except Exception:  # noqa: BLE001: of any kind: such a module does not take these extents
        return False


def give(made, dims, seed, torch):
    """Random inputs at given dimensions: a mask has ones first; indices lie below the extent that their kind names."""
    g, out = torch.Generator().manual_seed(seed), []
    for axes, kind in zip(made.axes, made.kinds):
        shape = [dims.get(a, a) for a in axes]
        if kind == "normal":
            out.append(torch.randn(shape, generator=g))
        elif kind == "mask":
            length = torch.randint(1, shape[-1] + 1, (shape[0], 1), generator=g)
            out.append((torch.arange(shape[-1])[None] < length).long())
        else:
            what = kind.split(":")[1]
            out.append(torch.randint(0, dims[what] if what in dims else int(what), shape, generator=g))
    return out
