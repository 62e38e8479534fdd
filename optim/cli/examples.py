"""Three examples of every command, which its help ends with."""

EXAMPLES: dict[str, tuple[str, str, str]] = {
    "bench": (
        "",
        "admission --instance small-0,small-1 --solver online,search --time-limit 10",
        "auction --apps 64 --gpus 256 --machines 32 --seed 0,1,2 --format json",
    ),
    "solve": (
        "small-0 --solver search --time-limit 10",
        "auction-tiny-0 --solver exact --out s.json",
        "mine.json --solver branch-and-price --options-file options.toml",
    ),
    "verify": ("small-0 s.json", "admission mine.json s.json", "run.npz"),
    "profile": (
        "--out profile.json",
        "--application matrix-factorisation --scale 0.02 --out profile.json",
        "--command 'python train.py --workers {workers}' --workers 1,2 --name mine --out mine.json",
    ),
    "run": ("tiny-0 s.json", "tiny-0 s.json --slot-seconds 2 --cores 1", "--kill-servers 5"),
    "solvers": ("", "admission search", "bidding --format json"),
    "info": ("", "--format json", "--format table"),
    "instance generate": (
        "admission --jobs 20 --slots 24 --out i.json",
        "auction --apps 6 --gpus 16 --machines 4 --seed 3 --out a.json.gz",
        "bidding --profile published --out b.json",
    ),
    "instance convert": (
        "--trace mine.csv --trace-format csv --jobs 100 --slots 168 --slot-minutes 60 --out i.json",
        "--trace jobs.csv.gz --trace-format philly --jobs 50 --slots 96 --out i.json",
        "i.json --out i.json.gz",
    ),
    "instance describe": ("small-0", "mine.json", "prices.json --format json"),
    "instance schema": ("admission", "auction", "bidding"),
    "simulate cluster": (
        "--generate themis --apps 20 --gpus 4x8 --policy srsf,tiresias",
        "--trace mine.csv --gpus 4x8 --policy fifo,srtf,las --log run.npz",
        "--generate philly --jobs 500 --gpus 8x8 --policy fifo --report page.html",
    ),
    "simulate spot": (
        "--starts 50 --job-hours 10",
        "--prices prices.csv.gz --on-demand on_demand.csv.gz --policy proteus --policy on-demand --train-until 2015-06-01",
        "--availability zones.csv --on-demand 3.06 --zone us-west-2a --job-hours 48 --deadline-hours 52",
    ),
    "simulate training": (
        "",
        "--policy proteus --job-hours 6 --picture run.png",
        "--no-warning --clocks 60",
    ),
    "simulate containers": (
        "",
        "--generate 200 --policy phase-price --policy vpa",
        "--input cpu=cpu.json --input memory=mem.json --report page.html",
    ),
    "simulate servers": (
        "",
        "--jobs 50 --seeds 10 --kills 0.01",
        "--most-shift 6 --model-s 10 --format json",
    ),
    "simulate packing": ("", "--jobs 60 --servers 3", "--risk 0.01 --solver search --time-limit 10"),
    "containers recommend": (
        "--generate 20 --cycle-minutes 30 --out recommended.json",
        "--input metrics.csv --format yaml --out patches.yaml",
        "--input cpu=cpu.json --input memory=mem.json --cycle-minutes 30",
    ),
    "phases fit": (
        "--generate 400 --phases 5 --out model.npz",
        "--input metrics.csv --out model.npz",
        "--input cpu=cpu.json --input memory=mem.json --encoder hmm --out model.npz",
    ),
    "phases encode": (
        "model.npz --input metrics.csv",
        "model.npz --generate 10",
        "model.npz --generate 10 --format json",
    ),
    "phases graph": ("model.npz", "model.npz --format json", "other.npz"),
    "phases report": (
        "model.npz --out page.html",
        "model.npz --generate 10 --out page.html",
        "model.npz --input metrics.csv --out page.html",
    ),
    "phases score": ("", "--encoder hmm,crbm --seeds 0,1,2", "--generate 100 --format json"),
    "phases watch": (
        "model.npz --input metrics.csv",
        "model.npz --generate 20",
        "model.npz --generate 20 --format json",
    ),
    "phases forecast": (
        "model.npz --input metrics.csv",
        "model.npz --generate 5",
        "model.npz --generate 5 --format json",
    ),
}
